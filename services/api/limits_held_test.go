package api

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.RunSync: {Requests: 100, Concurrent: 2}})
	var held []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(l.base, "http://"), "/v2"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const head = "POST /v2/ep/runsync?wait=300000 HTTP/1.1\r\nHost: x\r\nAuthorization: " + adminKey + "\r\nContent-Length: 12\r\n\r\n"
		if _, err := io.WriteString(conn, head+`{"input":{}}`); err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	gate := func() *gate {
		o := l.service.limits.operations[ratelimit.RunSync]
		o.mu.RLock()
		defer o.mu.RUnlock()
		return o.gates["ep"]
	}
	testenv.Eventually(t, "two are held", func() bool {
		s, err := l.queue.Counts.Stats(t.Context(), l.endpoint)
		return err == nil && s.Queued == 2 && gate() != nil
	})
	got := l.do("POST", "/ep/runsync", `{"input":{}}`)
	if got.status != 429 || got.header.Get("Retry-After") != "1" || !strings.Contains(got.raw, "too many runsync requests at once: this endpoint allows 2") {
		t.Errorf("third at once: got %d %s", got.status, got.raw)
	}
	if got, want := got.header.Get("RateLimit"), `"runsync";r=98;t=10`; got != want {
		t.Errorf("got %s, want %s: refused ones do not count", got, want)
	}
	if got, want := got.header.Get("RateLimit-Policy"), `"runsync";q=100;w=10, "runsync-concurrent";q=2;qu="concurrent-requests"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, conn := range held { // clients that go free their places
		_ = conn.Close()
	}
	testenv.Eventually(t, "there is room again", func() bool {
		return l.do("POST", "/ep/runsync", `{}`).status == 400
	})
}

func TestAPanicLeavesTheGate(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Stream: {Concurrent: 1}}, func(s *Service, app *fiber.App) {
		app.Get("/v2/:endpoint/boom", s.limited(ratelimit.Stream), func(*fiber.Ctx) error { panic("boom") })
	})
	for range 3 {
		if got := l.do("GET", "/ep/boom", ""); got.status != 500 {
			t.Errorf("got %d %s, want 500", got.status, got.raw)
		}
	}
}

func TestAStreamHoldsItsPlaceUntilItEnds(t *testing.T) {
	t.Parallel()
	var release func()
	l := start(t).limited(ratelimit.Table{ratelimit.Stream: {Concurrent: 1}}, func(s *Service, app *fiber.App) {
		app.Get("/v2/:endpoint/hold", s.limited(ratelimit.Stream), func(c *fiber.Ctx) error {
			release = releaseAtEnd(c)
			return c.JSON(fiber.Map{})
		})
		app.Get("/v2/:endpoint/free", func(c *fiber.Ctx) error {
			releaseAtEnd(c)() // nothing was entered
			return c.JSON(fiber.Map{})
		})
	})
	for i := range 2 {
		if got := l.do("GET", "/ep/hold", ""); got.status != 200 {
			t.Fatalf("round %d: got %d %s", i, got.status, got.raw)
		}
		if got := l.do("GET", "/ep/hold", ""); got.status != 429 {
			t.Errorf("round %d: got %d, want 429 while one is held", i, got.status)
		}
		release()
		release() // counts once
	}
	if got := l.do("GET", "/ep/free", ""); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}
