package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
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
		if key, err := parseIdempotencyKey(c); key != nil || err != nil || preferredWait(c) != 0 {
			b.Fatal("something was found")
		}
	}
}

// BenchmarkSubmission is a whole /run with and without a key, on a bus in this
// process.
func BenchmarkSubmission(b *testing.B) {
	base := benchSystem(b).base
	send := func(b *testing.B, key string) {
		b.Helper()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/ep/run", strings.NewReader(someInput))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", adminKey)
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
