package api

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"flightline/shared/job"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
)

// neverReached is more than any benchmark asks for within 10 s.
const neverReached = 1 << 30

// benchFront is what any request costs before its operation begins: its id, its
// key, the size of its body, its endpoint.
func benchFront(b *testing.B, reg *registry.Registry) {
	b.Helper()
	app := web.New(web.Config{})
	app.Post("/v2/:endpoint/run", web.Auth(reg.Keys, registry.Submit), web.MaxBody(job.MaxRunBody), func(c *fiber.Ctx) error {
		_, err := reg.Endpoints.Get(c.UserContext(), c.Params("endpoint"))
		return err
	})
	app.Handler() // builds the routes
	serve := app.Server().Handler
	var request fasthttp.RequestCtx
	request.Request.Header.SetMethod("POST")
	request.Request.Header.Set("Authorization", "Bearer "+adminKey)
	request.Request.SetRequestURI("/v2/ep/run")
	b.ReportAllocs()
	for b.Loop() {
		request.Response.Reset()
		request.ResetUserValues()
		serve(&request)
	}
	if got := request.Response.StatusCode(); got != 200 {
		b.Errorf("got %d %s", got, request.Response.Body())
	}
}

// BenchmarkLimited is what a request costs in Fiber with nothing but the limits
// in it, and without them.
func BenchmarkLimited(b *testing.B) {
	at := backend.New(b)
	b.Run("front", func(b *testing.B) { benchFront(b, at.Registry) })
	for name, table := range map[string]ratelimit.Table{"off": nil, "on": {ratelimit.Run: {Requests: neverReached, Concurrent: 200}}} {
		s, err := New(Config{Limits: table}, Deps{Queue: at.Queue, Registry: at.Registry, Events: at.Events(b)})
		if err != nil {
			b.Fatal(err)
		}
		app := fiber.New()
		app.Post("/v2/:endpoint/run", s.limited(ratelimit.Run), func(*fiber.Ctx) error { return nil })
		serve := app.Handler()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var request fasthttp.RequestCtx
			request.Request.Header.SetMethod("POST")
			request.Request.SetRequestURI("/v2/ep/run")
			for b.Loop() {
				request.Response.Reset()
				serve(&request)
			}
			if got := request.Response.StatusCode(); got != 200 {
				b.Errorf("got %d", got)
			}
		})
	}
}
