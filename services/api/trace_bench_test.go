package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flightline/shared/telemetry"
	"flightline/shared/telemetry/otlp"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
)

// BenchmarkTracedSubmission is a whole /run with traces on, sent to a collector
// in this process too, and off. The client is the same and counts.
func BenchmarkTracedSubmission(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	b.Cleanup(collector.Close)
	sender, err := otlp.Open(b.Context(), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}, "bench", "1", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sender.Close(b.Context()) })
	for _, c := range []struct {
		name   string
		tracer *telemetry.Tracer
	}{{"off", nil}, {"on", sender.Tracer()}} {
		at := backend.New(b)
		service, err := New(Config{}, Deps{Queue: at.Queue, Registry: at.Registry, Events: at.Events(b)})
		if err != nil {
			b.Fatal(err)
		}
		app := web.New(web.Config{Tracer: c.tracer})
		service.Routes(app)
		base := backend.Serve(b, app) + "/v2"
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/ep/run", strings.NewReader(someInput))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Authorization", adminKey)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					b.Fatalf("got %d %s, %v", resp.StatusCode, raw, err)
				}
				resp.Body.Close()
			}
		})
	}
}
