package api

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/limit"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

// BenchmarkLimited is what a request costs in Fiber with nothing but the limits
// in it, and without them.
func BenchmarkLimited(b *testing.B) {
	bus := bustest.New(b)
	if err := streams.Apply(b.Context(), bus.JS, streams.Config{}); err != nil {
		b.Fatal(err)
	}
	reg, err := registry.New(b.Context(), bus.JS, nil)
	if err != nil {
		b.Fatal(err)
	}
	q, err := queue.New(b.Context(), bus.NC, queue.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = reg.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	if _, err := reg.Endpoints.Create(b.Context(), endpoint.Endpoint{ID: "ep", Created: time.Now()}); err != nil {
		b.Fatal(err)
	}
	for name, table := range map[string]limit.Table{"off": nil, "on": {limit.Run: {Requests: 1 << 20, Concurrent: 200}}} {
		s, err := New(Config{Limits: table}, Deps{Queue: q, Registry: reg})
		if err != nil {
			b.Fatal(err)
		}
		app := fiber.New()
		app.Post("/v2/:endpoint/run", s.limited(limit.Run), func(*fiber.Ctx) error { return nil })
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
