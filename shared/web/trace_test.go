package web_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"flightline/shared/job"
	"flightline/shared/telemetry"
	"flightline/shared/web"
)

func TestEachRequestIsASpanNamedByItsRoute(t *testing.T) {
	recorded := tracetest.NewSpanRecorder()
	app := web.New(web.Config{Tracer: telemetry.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded)))})
	var within trace.SpanContext
	app.Get("/v2/:endpoint/status/:id", func(c *fiber.Ctx) error {
		within = trace.SpanContextFromContext(c.UserContext())
		return c.SendStatus(http.StatusAccepted)
	})
	app.Get("/lost", func(*fiber.Ctx) error { return job.ErrNotFound })
	app.Get("/broken", func(*fiber.Ctx) error { return errors.New("with a secret") })
	app.Get("/panic", func(*fiber.Ctx) error { panic("at once") })
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	base := "http://" + serve(t, app)
	const parent = "b7ad6b7169203331"
	for _, c := range []struct {
		path, name, route string
		status            int64
		failed            bool
	}{
		{"/v2/ep/status/j1?ttl=1", "GET /v2/:endpoint/status/:id", "/v2/:endpoint/status/:id", 202, false},
		{"/lost", "GET /lost", "/lost", 404, false},
		{"/broken", "GET /broken", "/broken", 500, true},
		{"/panic", "GET /panic", "/panic", 500, true},
		{"/nowhere", "GET", "", 404, false},
	} {
		recorded.Reset()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-"+parent+"-01")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		spans := recorded.Ended()
		if len(spans) != 1 {
			t.Fatalf("%s: got %d spans, want 1", c.path, len(spans))
		}
		got, attrs := spans[0], map[string]any{}
		for _, kv := range spans[0].Attributes() {
			attrs[string(kv.Key)] = kv.Value.AsInterface()
		}
		if got.Name() != c.name || got.SpanKind() != trace.SpanKindServer || got.Parent().SpanID().String() != parent || (got.Status().Code == codes.Error) != c.failed {
			t.Errorf("%s: got %q of kind %v beneath %v, %v, want %q", c.path, got.Name(), got.SpanKind(), got.Parent(), got.Status(), c.name)
		}
		if route, _ := attrs["http.route"].(string); route != c.route || attrs["http.response.status_code"] != c.status {
			t.Errorf("%s: got the attributes %v, want the route %q and %d", c.path, attrs, c.route, c.status)
		}
		if attrs["flightline.request.id"] != resp.Header.Get(web.HeaderRequestID) {
			t.Errorf("%s: got the attributes %v, want the id of the request", c.path, attrs)
		}
		if c.status == 202 && (attrs["flightline.endpoint.id"] != "ep" || attrs["flightline.job.id"] != "j1" || !within.Equal(got.SpanContext())) {
			t.Errorf("got the attributes %v and the context %v in the handler, want those of the span", attrs, within)
		}
	}
	recorded.Reset()
	resp, err := http.Get(base + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := recorded.Ended(); len(got) > 0 {
		t.Errorf("got %v for a health check, want nothing", got)
	}
}
