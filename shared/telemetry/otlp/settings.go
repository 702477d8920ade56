package otlp

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// ErrConfig is what is wrong with the OTEL_ variables.
var ErrConfig = errors.New("traces: configuration")

const (
	prefix         = "OTEL_EXPORTER_OTLP_"
	prefixTraces   = "OTEL_EXPORTER_OTLP_TRACES_"
	defaultTimeout = 10 * time.Second
)

// settings are what the variables say.
type settings struct {
	endpoint string
	headers  map[string]string
	timeout  time.Duration
	gzip     bool
	resource map[string]string
	batching []sdk.BatchSpanProcessorOption
	sampler  sdk.Sampler
	// parentBased is whether the sampler leaves it to the parent, if there is one.
	parentBased bool
}

// settingsOf reads the variables. The SDK reads most of them too, but from the
// process alone, and it ignores a value that makes no sense, which is to end the
// process here (docs/tracing.md). on is false if no endpoint is named, or
// traces are switched off.
func settingsOf(env map[string]string) (s settings, on bool, err error) {
	variable, endpoint := prefixTraces+"ENDPOINT", env[prefixTraces+"ENDPOINT"]
	if base := env[prefix+"ENDPOINT"]; endpoint == "" && base != "" {
		variable, endpoint = prefix+"ENDPOINT", strings.TrimRight(base, "/")+"/v1/traces"
	}
	if endpoint == "" || strings.EqualFold(env["OTEL_SDK_DISABLED"], "true") || env["OTEL_TRACES_EXPORTER"] == "none" {
		return s, false, nil
	}
	s.endpoint = endpoint
	if u, err := url.Parse(endpoint); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return s, false, fmt.Errorf("%w: %s must be an http or https address", ErrConfig, variable) // which may hold a password
	}
	of := func(name string) string {
		if value := env[prefixTraces+name]; value != "" {
			return value
		}
		return env[prefix+name]
	}
	if protocol := of("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return s, false, fmt.Errorf("%w: %sPROTOCOL %q: must be http/protobuf", ErrConfig, prefix, protocol)
	}
	if exporter := env["OTEL_TRACES_EXPORTER"]; exporter != "" && exporter != "otlp" {
		return s, false, fmt.Errorf("%w: OTEL_TRACES_EXPORTER %q: must be otlp or none", ErrConfig, exporter)
	}
	if s.headers, err = pairs(prefix+"HEADERS", of("HEADERS")); err != nil {
		return s, false, err
	}
	if s.resource, err = pairs("OTEL_RESOURCE_ATTRIBUTES", env["OTEL_RESOURCE_ATTRIBUTES"]); err != nil {
		return s, false, err
	}
	if name := env["OTEL_SERVICE_NAME"]; name != "" {
		s.resource["service.name"] = name
	}
	switch compression := of("COMPRESSION"); compression {
	case "gzip":
		s.gzip = true
	case "", "none":
	default:
		return s, false, fmt.Errorf("%w: %sCOMPRESSION %q: must be gzip or none", ErrConfig, prefix, compression)
	}
	if s.timeout, err = timeoutOf(of("TIMEOUT")); err != nil {
		return s, false, err
	}
	if s.batching, err = batchingOf(env); err != nil {
		return s, false, err
	}
	s.sampler, s.parentBased, err = samplerOf(env["OTEL_TRACES_SAMPLER"], env["OTEL_TRACES_SAMPLER_ARG"])
	return s, err == nil, err
}

func (s settings) options() []otlptracehttp.Option {
	compression := otlptracehttp.NoCompression
	if s.gzip {
		compression = otlptracehttp.GzipCompression
	}
	return []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(s.endpoint), otlptracehttp.WithHeaders(s.headers),
		otlptracehttp.WithTimeout(s.timeout), otlptracehttp.WithCompression(compression),
	}
}

// batchingOf reads how spans go together, by the standard's defaults.
func batchingOf(env map[string]string) (options []sdk.BatchSpanProcessorOption, err error) {
	number := func(name string, standard int) int {
		text := env["OTEL_BSP_"+name]
		if text == "" {
			return standard
		}
		n, e := strconv.Atoi(text)
		if e != nil || n <= 0 {
			err = fmt.Errorf("%w: OTEL_BSP_%s %q: must be a whole number from 1", ErrConfig, name, text)
		}
		return n
	}
	room := number("MAX_QUEUE_SIZE", sdk.DefaultMaxQueueSize)
	options = []sdk.BatchSpanProcessorOption{
		sdk.WithBatchTimeout(time.Duration(number("SCHEDULE_DELAY", sdk.DefaultScheduleDelay)) * time.Millisecond),
		sdk.WithExportTimeout(time.Duration(number("EXPORT_TIMEOUT", sdk.DefaultExportTimeout)) * time.Millisecond),
		sdk.WithMaxQueueSize(room),
		sdk.WithMaxExportBatchSize(min(number("MAX_EXPORT_BATCH_SIZE", sdk.DefaultMaxExportBatchSize), room)),
	}
	return options, err
}

// samplerOf returns the sampler of that name. Without a name it is the standard's:
// all traces that begin here, and of the others those that the caller records.
func samplerOf(name, arg string) (s sdk.Sampler, parentBased bool, err error) {
	name, parentBased = strings.CutPrefix(strings.ToLower(name), "parentbased_")
	switch name {
	case "":
		s, parentBased = sdk.AlwaysSample(), true
	case "always_on":
		s = sdk.AlwaysSample()
	case "always_off":
		s = sdk.NeverSample()
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return nil, false, fmt.Errorf("%w: OTEL_TRACES_SAMPLER_ARG %q: must be a number from 0 to 1", ErrConfig, arg)
			}
		}
		s = sdk.TraceIDRatioBased(ratio)
	default:
		return nil, false, fmt.Errorf("%w: OTEL_TRACES_SAMPLER %q is none of always_on, always_off, traceidratio, and these with parentbased_", ErrConfig, name)
	}
	if parentBased {
		s = sdk.ParentBased(s)
	}
	return s, parentBased, nil
}

// pairs reads a list like a=1,b=2, its values percent-encoded; of a repeated name the last
// counts. An error does not quote it: headers are secret.
func pairs(name, list string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || key == "" || err != nil {
			return nil, fmt.Errorf("%w: %s must be like name=value,name=value", ErrConfig, name)
		}
		all[key] = value
	}
	return all, nil
}

func timeoutOf(text string) (time.Duration, error) {
	if text == "" {
		return defaultTimeout, nil
	}
	ms, err := strconv.Atoi(text)
	if err != nil || ms <= 0 {
		return 0, fmt.Errorf("%w: %sTIMEOUT %q: must be milliseconds", ErrConfig, prefix, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
