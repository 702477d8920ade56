package otlp

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"flightline/shared/job"
	"flightline/shared/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheVariablesMeanWhatTheyMeanElsewhere(t *testing.T) {
	const base = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env      map[string]string
		endpoint string // "" means off
		sampler  sampler
	}{
		"none":              {nil, "", sampler{}},
		"a base":            {map[string]string{base: "http://otel:4318/"}, "http://otel:4318/v1/traces", sampler{true, everything}},
		"one for traces":    {map[string]string{base: "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://b/in"}, "https://b/in", sampler{true, everything}},
		"disabled":          {map[string]string{base: "http://a", "OTEL_SDK_DISABLED": "TRUE"}, "", sampler{}},
		"no exporter":       {map[string]string{base: "http://a", "OTEL_TRACES_EXPORTER": "none"}, "", sampler{}},
		"a tenth":           {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, "http://a/v1/traces", sampler{false, everything / 10}},
		"a tenth of others": {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, "http://a/v1/traces", sampler{true, everything / 10}},
		"never":             {map[string]string{base: "http://a", "OTEL_TRACES_SAMPLER": "always_off"}, "http://a/v1/traces", sampler{}},
	} {
		s, on, err := settingsOf(c.env)
		if err != nil || on != (c.endpoint != "") || on && s.endpoint != c.endpoint {
			t.Errorf("%s: got %q, %v, %v, want %q", name, s.endpoint, on, err, c.endpoint)
			continue
		}
		if s.sampler.follow != c.sampler.follow || max(s.sampler.below, c.sampler.below)-min(s.sampler.below, c.sampler.below) > 1000 {
			t.Errorf("%s: got the sampler %+v, want %+v", name, s.sampler, c.sampler)
		}
	}
	for name, value := range map[string]string{
		base: "otel:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_TRACES_EXPORTER": "zipkin",
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
	if diff := cmp.Diff([][2]string{{"a", "1"}, {"b", "two words,"}, {"c", ""}}, got); diff != "" || err != nil {
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

func TestTheLastSpansAreSentAtTheEnd(t *testing.T) {
	var got []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r) }))
	defer server.Close()
	s, err := Open(t.Context(), map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=k", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
	}, "mine", "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	telemetry.End(s.Tracer().Process(t.Context(), &job.Job{ID: "j1"}), "COMPLETED")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Header.Get("X-Key") != "k" || got[0].Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %d requests %+v, want one, with the header and compressed", len(got), got)
	}
}

func TestWhatCannotBeSentIsLogged(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var text bytes.Buffer
	s, err := Open(t.Context(), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL}, "mine", "1", slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	telemetry.End(s.Tracer().Process(t.Context(), &job.Job{ID: "j1"}), "COMPLETED")
	err = s.Close(t.Context())
	if err == nil && !strings.Contains(text.String(), "spans not sent") {
		t.Errorf("got %v and the log %q, want one of them to tell", err, text.String())
	}
}
