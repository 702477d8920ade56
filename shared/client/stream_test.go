package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

// turn is what the server says to one connection. It breaks off at the end
// unless ends.
type turn struct {
	status int // 0 means 200
	text   string
	ends   bool
	kind   string // the Content-Type; "" means what was asked for
}

// streaming serves the turns, the last one again and again, and notes where
// each connection wants to go on.
func streaming(t *testing.T, turns ...turn) (c *client.Client, from func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now := turns[min(len(seen), len(turns)-1)]
		seen = append(seen, r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		if r.URL.RequestURI() != "/v2/ep/stream/j1?format=sse" {
			t.Errorf("got a request of %s", r.URL)
		}
		w.Header().Set("Content-Type", cmp.Or(now.kind, r.Header.Get("Accept")))
		if now.status != 0 {
			w.WriteHeader(now.status)
		}
		_, _ = io.WriteString(w, now.text)
		if !now.ends {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	web.Config.ErrorLog = nil
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
}

func chunk(n int) string { return fmt.Sprintf("id: %d\ndata: {\"output\":%d}\n\n", n, n) }

const (
	completed = "event: status\ndata: {\"id\":\"j1\",\"status\":\"COMPLETED\"}\n\n"
	hello     = "retry: 1000\n\n"
)

func collect(ctx context.Context, s *client.Stream) (got string, err error) {
	for c, err := range s.All(ctx) {
		if err != nil {
			return got, err
		}
		got += fmt.Sprintf("%d=%s ", c.Cursor, c.Data)
	}
	return got, nil
}

func TestStreamGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	all := `3={"output":3} 4={"output":4} 9={"output":9} `
	tests := map[string]struct {
		turns []turn
		from  []string
	}{
		"in one go":                 {[]turn{{text: hello + chunk(3) + chunk(4) + chunk(9) + completed, ends: true}}, []string{"0"}},
		"with signs of life":        {[]turn{{text: hello + ": keep-alive\n\n" + chunk(3) + chunk(4) + ": keep-alive\n\n" + chunk(9) + completed, ends: true}}, []string{"0"}},
		"with events of the future": {[]turn{{text: hello + "event: new\ndata: {}\n\n" + chunk(3) + chunk(4) + chunk(9) + completed, ends: true}}, []string{"0"}},
		"broken between chunks":     {[]turn{{text: hello + chunk(3)}, {text: hello + chunk(4) + chunk(9)}, {text: completed, ends: true}}, []string{"0", "3", "9"}},
		"broken within a chunk":     {[]turn{{text: chunk(3) + "id: 4\ndata: {\"out"}, {text: chunk(4) + "id: 9\ndata: {\"output\":9}\n"}, {text: chunk(9) + completed, ends: true}}, []string{"0", "3", "4"}},
		"a server that stops":       {[]turn{{text: hello + chunk(3), ends: true}, {text: chunk(4) + chunk(9) + completed, ends: true}}, []string{"0", "3"}},
		"a server that is not ready": {[]turn{
			{status: 503, text: `{}`, ends: true},
			{text: chunk(3)},
			{status: 503, text: `{}`, ends: true},
			{text: chunk(4) + chunk(9) + completed, ends: true},
		}, []string{"0", "0", "3", "3"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, from := streaming(t, test.turns...)
			s := c.Stream("ep", "j1", client.StreamOptions{})
			got, err := collect(t.Context(), s)
			if err != nil || got != all || !slices.Equal(from(), test.from) {
				t.Errorf("got %s, %v, from %v, want %s from %v", got, err, from(), all, test.from)
			}
			if end := s.End(); end == nil || end.Status != job.Completed || s.Cursor() != 9 {
				t.Errorf("got end %+v at %d, want COMPLETED at 9", end, s.Cursor())
			}
			if again, err := collect(t.Context(), s); again != "" || err != nil {
				t.Errorf("again: got %s, %v, want nothing", again, err)
			}
		})
	}
}

func TestStreamEndsWithAnError(t *testing.T) {
	t.Parallel()
	notFound := client.IsNotFound
	unreachable := func(err error) bool { return errors.Is(err, client.ErrUnreachable) }
	tests := map[string]struct {
		turns    []turn
		patience time.Duration
		is       func(error) bool
		requests int
	}{
		"no such job":       {[]turn{{status: 404, text: `{"error":"no such job","code":"job_not_found"}`, ends: true}}, 0, notFound, 1},
		"expired meanwhile": {[]turn{{text: chunk(1) + "event: gone\ndata: {\"id\":\"j1\"}\n\n", ends: true}}, 0, notFound, 1},
		"gone for good":     {[]turn{{text: chunk(1)}, {status: 404, text: `{"error":"no such job","code":"job_not_found"}`, ends: true}}, 0, notFound, 2},
		"no patience":       {[]turn{{text: chunk(1)}}, -1, unreachable, 1},
		"never there":       {[]turn{{}}, 0, unreachable, 1},
		"a strange id":      {[]turn{{text: "id: x\ndata: 1\n\n", ends: true}}, 0, func(err error) bool { return err != nil }, 1},
		"a strange end":     {[]turn{{text: "event: status\ndata: x\n\n", ends: true}}, 0, func(err error) bool { return err != nil }, 1},
		"another's page":    {[]turn{{text: "<html>hello</html>", ends: true, kind: "text/html; charset=utf-8"}}, 0, func(err error) bool { return err != nil && strings.Contains(err.Error(), "text/html") }, 1},
		"too long a line":   {[]turn{{text: "id: 1\ndata: " + strings.Repeat("x", 2*job.MaxChunk) + "\n\n", ends: true}}, 0, func(err error) bool { return errors.Is(err, client.ErrTooLarge) }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, from := streaming(t, test.turns...)
			s := c.Stream("ep", "j1", client.StreamOptions{Patience: test.patience})
			if name == "never there" {
				c, err := client.New("http://127.0.0.1:1", "", client.WithPatience(0))
				if err != nil {
					t.Fatal(err)
				}
				s, from = c.Stream("ep", "j1", client.StreamOptions{}), func() []string { return make([]string, 1) }
			}
			_, err := collect(t.Context(), s)
			if !test.is(err) || len(from()) != test.requests || s.End() != nil {
				t.Errorf("got %v after %d requests, want it after %d", err, len(from()), test.requests)
			}
		})
	}
}

func TestStreamEndsWithItsContextOrItsLoop(t *testing.T) {
	large := `{"output":"` + strings.Repeat("x", job.MaxChunk-20) + `"}`
	c, from := streaming(t, turn{text: "id: 7\ndata: " + large + "\n\n" + chunk(8)})
	s := c.Stream("ep", "j1", client.StreamOptions{After: 5})
	for got, err := range s.All(t.Context()) {
		if err != nil || string(got.Data) != large {
			t.Fatalf("got a chunk of %d bytes, %v, want one of %d", len(got.Data), err, len(large))
		}
		break
	}
	if s.Cursor() != 7 {
		t.Errorf("got cursor %d, want 7", s.Cursor())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range s.All(ctx) {
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
	if got := from(); len(got) < 2 || got[0] != "5" || got[1] != "7" {
		t.Errorf("got connections from %v, want 5 and 7", got)
	}
}
