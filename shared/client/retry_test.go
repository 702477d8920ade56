package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
)

// restarting is a server that can be away and come back at its address.
type restarting struct {
	t       *testing.T
	address string
	handler http.HandlerFunc
	web     *httptest.Server

	mu   sync.Mutex
	keys []string // the Idempotency-Key of each request
}

func newRestarting(t *testing.T, handler http.HandlerFunc) *restarting {
	t.Helper()
	r := &restarting{t: t, address: "127.0.0.1:0", handler: handler}
	r.start()
	r.address = r.web.Listener.Addr().String()
	t.Cleanup(func() { r.web.Close() })
	return r
}

func (r *restarting) start() {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.web = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.keys = append(r.keys, q.Header.Get("Idempotency-Key"))
		r.mu.Unlock()
		w.Header().Set("Content-Type", q.Header.Get("Accept"))
		r.handler(w, q)
	}))
	_ = r.web.Listener.Close()
	r.web.Listener = l
	r.web.Start()
}

func (r *restarting) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

func (r *restarting) client(opts ...client.Option) *client.Client {
	r.t.Helper()
	c, err := client.New("http://"+r.address, "", opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func accept(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(`{"id":"j1","status":"IN_QUEUE"}`))
}

// hangUp ends the connection without an answer: the request may have been heard.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// turns answers each request by the next of list, the last one repeats.
func turns(list ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		next := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		mu.Unlock()
		next(w, r)
	}
}

func TestACallThatNobodyHeardIsRepeatedUntilTheServerIsBack(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *client.Client) error{
		"a submission without a key": func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", client.Request{Input: struct{}{}})
			return err
		},
		"a read": func(ctx context.Context, c *client.Client) error {
			_, err := c.Status(ctx, "ep", "j1")
			return err
		},
		"a change": func(ctx context.Context, c *client.Client) error {
			_, err := c.Cancel(ctx, "ep", "j1")
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestarting(t, accept)
			r.web.Close()
			done := make(chan error)
			go func() { done <- call(t.Context(), r.client()) }()
			select {
			case err := <-done:
				t.Fatalf("got %v while the server is away, want patience", err)
			case <-time.After(300 * time.Millisecond):
			}
			r.start()
			if err := <-done; err != nil {
				t.Errorf("got %v, want an answer after the restart", err)
			}
			if n := len(r.seen()); n != 1 {
				t.Errorf("got %d requests, want 1", n)
			}
		})
	}
}

func TestWhatMayHaveBeenHeardIsRepeatedOnlyIfItCountsOnce(t *testing.T) {
	t.Parallel()
	run := func(key string) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", client.Request{Input: struct{}{}, IdempotencyKey: key})
			return err
		}
	}
	tests := map[string]struct {
		opts     []client.Option
		call     func(context.Context, *client.Client) error
		requests int
	}{
		"a submission":                   {nil, run(""), 1},
		"a submission with a key":        {nil, run("k1"), 3},
		"a submission of a keyed client": {[]client.Option{client.WithRepeatableRuns()}, run(""), 3},
		"a key of its own is kept":       {[]client.Option{client.WithRepeatableRuns()}, run("k1"), 3},
		"no patience":                    {[]client.Option{client.WithPatience(0)}, run("k1"), 1},
		"a wait for a result with a key": {nil, func(ctx context.Context, c *client.Client) error {
			_, err := c.RunSync(ctx, "ep", client.Request{Input: struct{}{}, IdempotencyKey: "k1"}, time.Second)
			return err
		}, 3},
		"a read":                         {nil, func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx, "ep", "j1"); return err }, 3},
		"a change that counts each time": {nil, func(ctx context.Context, c *client.Client) error { _, err := c.Retry(ctx, "ep", "j1"); return err }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Connections are new, as net/http itself repeats what an old one did not take.
			fresh := client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
			r := newRestarting(t, turns(hangUp, hangUp, accept))
			err := test.call(t.Context(), r.client(append(test.opts, fresh)...))
			if ok := test.requests == 3; (err == nil) != ok || err != nil && !errors.Is(err, client.ErrUnreachable) {
				t.Errorf("got %v", err)
			}
			seen := r.seen()
			if len(seen) != test.requests || len(slices.Compact(slices.Clone(seen))) != 1 {
				t.Errorf("got requests with the keys %q, want %d with the same", seen, test.requests)
			}
			if strings.Contains(name, "keyed") && seen[0] == "" {
				t.Error("got no key")
			}
		})
	}
}

func TestTheNextAddressIsTriedAndKept(t *testing.T) {
	t.Parallel()
	unavailable := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	limited := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }
	tests := map[string]struct {
		first        http.HandlerFunc // nil: nobody is there
		wantA, wantB int
	}{
		"nobody is there":       {nil, 0, 3},
		"it is not ready":       {unavailable, 1, 3},
		"it hangs up":           {hangUp, 1, 3},
		"a limit is one of all": {turns(limited, accept), 4, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newRestarting(t, test.first), newRestarting(t, accept)
			if test.first == nil {
				a.web.Close()
			}
			fresh := client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
			c, err := client.New("http://"+a.address+"/v2, http://"+b.address, "", fresh)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := c.Run(t.Context(), "ep", client.Request{Input: struct{}{}, IdempotencyKey: "k"}); err != nil {
					t.Error(err)
				}
			}
			if gotA, gotB := len(a.seen()), len(b.seen()); gotA != test.wantA || gotB != test.wantB {
				t.Errorf("got %d and %d requests, want %d and %d", gotA, gotB, test.wantA, test.wantB)
			}
		})
	}
}

// A call that must not be repeated fails, and the next one goes elsewhere.
func TestABadAddressIsLeftByACallThatIsNotRepeatedToo(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *client.Client) error{
		"a submission without a key": func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", client.Request{Input: struct{}{}})
			return err
		},
		"a change": func(ctx context.Context, c *client.Client) error { _, err := c.Cancel(ctx, "ep", "j1"); return err },
	}
	for name, call := range calls {
		for answer, first := range map[string]http.HandlerFunc{
			"503":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
			"none": hangUp,
		} {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				a, b := newRestarting(t, first), newRestarting(t, accept)
				c, err := client.New("http://"+a.address+",http://"+b.address, "")
				if err != nil {
					t.Fatal(err)
				}
				if err := call(t.Context(), c); err == nil {
					t.Error("got an answer to the first call, want its error")
				}
				if err := call(t.Context(), c); err != nil {
					t.Errorf("got %v for the second call, want the answer of the next address", err)
				}
				if gotA, gotB := len(a.seen()), len(b.seen()); gotA != 1 || gotB != 1 {
					t.Errorf("got %d and %d requests, want one each", gotA, gotB)
				}
			})
		}
	}
}

// A proxy answers 502 or 504 while the server behind it restarts.
func TestAProxyThatReachesNoServerIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		away := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		r := newRestarting(t, turns(away, away, accept))
		if _, err := r.client().Status(t.Context(), "ep", "j1"); err != nil || len(r.seen()) != 3 {
			t.Errorf("%d: a read: got %v after %d requests, want the answer of the third", status, err, len(r.seen()))
		}
		r = newRestarting(t, turns(away, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(chunk(1) + completed)) }))
		if got, err := collect(t.Context(), r.client().Stream("ep", "j1", client.StreamOptions{})); err != nil || got != `1={"output":1} ` {
			t.Errorf("%d: a stream: got %s, %v, want that of the second request", status, got, err)
		}
		r = newRestarting(t, away)
		_, err := r.client().Run(t.Context(), "ep", client.Request{Input: struct{}{}})
		refused, answered := errors.AsType[*client.Error](err)
		if !errors.Is(err, client.ErrUnreachable) || !answered || refused.Status != status || len(r.seen()) != 1 {
			t.Errorf("%d: a submission: got %v after %d requests, want that of the first", status, err, len(r.seen()))
		}
	}
}

func TestAStreamIsReadWhereverItsServerIs(t *testing.T) {
	t.Parallel()
	a, b := newRestarting(t, accept), newRestarting(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(chunk(1) + completed))
	})
	a.web.Close()
	c, err := client.New("http://"+a.address+",http://"+b.address, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := collect(t.Context(), c.Stream("ep", "j1", client.StreamOptions{}))
	if err != nil || got != `1={"output":1} ` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	r := newRestarting(t, accept)
	r.web.Close()
	began := time.Now()
	_, err := r.client(client.WithPatience(time.Second)).Status(t.Context(), "ep", "j1")
	if !errors.Is(err, client.ErrUnreachable) || strings.Contains(err.Error(), ": : ") {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("got it after %v, want it after a second", took)
	}
}

func TestTheEndOfAContextIsItsErrorAlsoWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	r := newRestarting(t, accept)
	r.web.Close()
	calls := map[string]func(context.Context, *client.Client) error{
		"run": func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", client.Request{Input: struct{}{}})
			return err
		},
		"wait": func(ctx context.Context, c *client.Client) error {
			_, err := c.Wait(ctx, "ep", "j1")
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if err := call(ctx, r.client()); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := call(ctx, r.client()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want context.DeadlineExceeded", err)
			}
		})
	}
}
