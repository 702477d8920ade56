package otlp

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheVariablesMeanWhatTheyMeanElsewhere(t *testing.T) {
	const base = "OTEL_EXPORTER_OTLP_ENDPOINT"
	const all, tenth = "ParentBased{root:AlwaysOnSampler,", "TraceIDRatioBased{0.1}"
	for name, c := range map[string]struct {
		env      map[string]string
		endpoint string // "" means off
		sampler  string // how its description begins
	}{
		"none":              {nil, "", ""},
		"a base":            {map[string]string{base: "http://otel:4318/"}, "http://otel:4318/v1/traces", all},
		"one for traces":    {map[string]string{base: "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://b/in"}, "https://b/in", all},
		"disabled":          {map[string]string{base: "http://a", "OTEL_SDK_DISABLED": "TRUE"}, "", ""},
		"no exporter":       {map[string]string{base: "http://a", "OTEL_TRACES_EXPORTER": "none"}, "", ""},
		"a tenth":           {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, "http://a/v1/traces", tenth},
		"a tenth of others": {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, "http://a/v1/traces", "ParentBased{root:" + tenth},
		"never":             {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "always_off"}, "http://a/v1/traces", "AlwaysOffSampler"},
	} {
		s, on, err := settingsOf(c.env)
		if err != nil || on != (c.endpoint != "") || on && s.endpoint != c.endpoint {
			t.Errorf("%s: got %q, %v, %v, want %q", name, s.endpoint, on, err, c.endpoint)
			continue
		}
		if !on {
			continue
		}
		if got := s.sampler.Description(); !strings.HasPrefix(got, c.sampler) || s.parentBased != strings.HasPrefix(got, "ParentBased") {
			t.Errorf("%s: got the sampler %s, want %s", name, got, c.sampler)
		}
	}
	for name, value := range map[string]string{
		base: "otel:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_TRACES_EXPORTER": "zipkin",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "GZIP",
		"OTEL_TRACES_SAMPLER": "sometimes", "OTEL_EXPORTER_OTLP_HEADERS": "secret", "OTEL_RESOURCE_ATTRIBUTES": "a",
		"OTEL_BSP_SCHEDULE_DELAY": "soon", "OTEL_BSP_MAX_QUEUE_SIZE": "0", "OTEL_BSP_EXPORT_TIMEOUT": "-1",
	} {
		env := map[string]string{base: "http://a"}
		env[name] = value
		if _, _, err := settingsOf(env); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: got %v, want ErrConfig", name, value, err)
		}
	}
	_, _, err := settingsOf(map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"})
	if !errors.Is(err, ErrConfig) {
		t.Errorf("a ratio of 2: got %v, want ErrConfig", err)
	}
}

func TestListsArePairsInPercentEncoding(t *testing.T) {
	got, err := pairs("x", " a=1, b=two%20words%2C ,c=")
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "two words,", "c": ""}, got); diff != "" || err != nil {
		t.Errorf("%v; want -, got +:\n%s", err, diff)
	}
}

func TestOffIsNil(t *testing.T) {
	s, err := Open(t.Context(), nil, "mine", "1", nil)
	if s != nil || err != nil || s.Tracer() != nil || s.Close(t.Context()) != nil {
		t.Errorf("got %v, %v, want nothing", s, err)
	}
	log := slog.New(slog.DiscardHandler)
	if s.Logs(log) != log {
		t.Error("got another log, want the one that was given")
	}
}
