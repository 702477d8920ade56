package webhook

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"flightline/shared/telemetry"
)

// Some receivers have their secret in the path of their address.
func TestNoSpanHasThePathOfAnAddress(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	spans := tracetest.NewSpanRecorder()
	cfg := lenient()
	cfg.Tracer = telemetry.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	s.serve(cfg)
	r := receive(t, answerWith(200))
	s.over(s.complete(r.url + "/hush?token=hush"))
	ended := spans.Ended()
	if len(ended) == 0 {
		t.Fatal("got no span")
	}
	for _, a := range ended[0].Attributes() {
		if strings.Contains(a.Value.String(), "hush") {
			t.Errorf("got %s %s", a.Key, a.Value.String())
		}
	}
}
