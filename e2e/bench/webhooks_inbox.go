package main

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// inbox is the healthy receiver.
type inbox struct {
	url string
	// slow is how long an answer takes.
	slow atomic.Int64
	web  *httptest.Server
	// seen is the first webhook that came.
	seen atomic.Pointer[posted]

	mu   sync.Mutex
	came map[string]time.Time // by job
	want int
	full chan struct{}
}

func newListener(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort)
}

// newInbox listens. If secure it does so as https, HTTP/2 among it, with a
// certificate of its own.
func newInbox(secure bool) *inbox {
	in := &inbox{}
	in.web = httptest.NewUnstartedServer(in)
	in.web.Config.ReadHeaderTimeout = stepWithin
	if in.web.EnableHTTP2 = secure; secure {
		in.web.StartTLS()
	} else {
		in.web.Start()
	}
	in.url = in.web.URL
	return in
}

// trust writes down the certificate for those who are to trust it.
func (in *inbox) trust(path string) error {
	block := &pem.Block{Type: "CERTIFICATE", Bytes: in.web.Certificate().Raw}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

func (in *inbox) close() { in.web.Close() }

// ServeHTTP counts each webhook once.
func (in *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if in.seen.Load() == nil {
		in.see(r)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if d := in.slow.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	now := time.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	key := jobOf(r.Header.Get(webhookID))
	if _, again := in.came[key]; again {
		return
	}
	if in.came[key] = now; len(in.came) == in.want {
		close(in.full)
	}
}

// expect begins a round. What the last one left in memory is no part of it.
func (in *inbox) expect(n int) {
	runtime.GC()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.came, in.want, in.full = make(map[string]time.Time, n+1), n, make(chan struct{})
}

// all waits for them and returns how long after the first the last one came.
func (in *inbox) all(ctx context.Context) (time.Duration, error) {
	select {
	case <-in.full:
	case <-ctx.Done():
		return 0, errors.Join(errors.New("not all webhooks came"), ctx.Err())
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var first, last time.Time
	for _, at := range in.came {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(first), nil
}

// after is how long after it was queued each came, sorted.
func (in *inbox) after(queued map[string]time.Time) []time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	var late []time.Duration
	for id, at := range in.came {
		if q, ok := queued[id]; ok {
			late = append(late, at.Sub(q))
		}
	}
	slices.Sort(late)
	return late
}
