package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// BenchmarkPlainSubmission is what a /run without Idempotency-Key and Prefer
// pays for the two: a look at the headers each.
func BenchmarkPlainSubmission(b *testing.B) {
	app := fiber.New()
	raw := new(fasthttp.RequestCtx)
	for name, value := range map[string]string{
		"Authorization": "Bearer fl_0123456789", "Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "bench", "Content-Type": "application/json", "X-Forwarded-For": "127.0.0.1",
	} {
		raw.Request.Header.Set(name, value)
	}
	c := app.AcquireCtx(raw)
	defer app.ReleaseCtx(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, known, err := idempotencyOf(c); known || err != nil || preferredWait(c) != 0 {
			b.Fatal("something was found")
		}
	}
}

// BenchmarkSubmission is a whole /run with and without a key, on a bus in this
// process.
func BenchmarkSubmission(b *testing.B) {
	base := benchAPI(b)
	send := func(b *testing.B, key string) {
		b.Helper()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/v2/ep/run", strings.NewReader(someInput))
		if err != nil {
			b.Fatal(err)
		}
		if key != "" {
			req.Header.Set(headerIdempotencyKey, key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("got %d %s, %v", resp.StatusCode, raw, err)
		}
	}
	n := 0
	for name, key := range map[string]func() string{
		"plain":  func() string { return "" },
		"keyed":  func() string { n++; return fmt.Sprintf("key-%d", n) },
		"replay": func() string { return "key" },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				send(b, key())
			}
		})
	}
}

// benchAPI serves the route /run without authentication.
func benchAPI(b *testing.B) (base string) {
	b.Helper()
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
	wg.Go(func() { _ = q.Run(ctx) })
	b.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); cancel(); wg.Wait() })
	e, err := reg.Endpoints.Create(b.Context(), endpoint.Endpoint{ID: "ep", Created: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	if err := q.CreateEndpoint(b.Context(), e); err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{}, Deps{Queue: q, Registry: reg})
	if err != nil {
		b.Fatal(err)
	}
	app := web.New(web.Config{})
	app.Post("/v2/:endpoint/run", s.run)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	wg.Go(func() { _ = web.Serve(ctx, app, listener) })
	return "http://" + listener.Addr().String()
}
