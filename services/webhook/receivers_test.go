package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// exact is how far from its time an attempt may be on a machine that is not
// late itself; never sooner.
const exact = 250 * time.Millisecond

// lateness is how late this machine was, and when, for what an attempt takes: a
// timer, and an answer of the bus.
type lateness struct {
	mu   sync.Mutex
	seen []spell
}

type spell struct {
	from, to time.Time
	late     time.Duration
}

// watchLateness looks 20 times a second until the test ends.
func (s *env) watchLateness() *lateness {
	s.t.Helper()
	const every = 50 * time.Millisecond
	l := &lateness{}
	testenv.Background(s.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			began := time.Now()
			<-time.After(every)
			_, _ = s.js.Stream(ctx, streams.Webhooks)
			l.mu.Lock()
			l.seen = append(l.seen, spell{began, time.Now(), time.Since(began) - every})
			l.mu.Unlock()
		}
		return nil
	})
	return l
}

// allowed is how late an attempt may begin that is due at a time and began at
// another: half a dozen steps lie between, each as late as the machine was.
func (l *lateness) allowed(due, began time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var worst time.Duration
	for _, x := range l.seen {
		if x.to.After(due.Add(-exact)) && x.from.Before(began.Add(exact)) {
			worst = max(worst, x.late)
		}
	}
	if worst < exact/10 {
		return exact // a quiet machine
	}
	return exact + 6*worst
}

// checkPause wants the second of two attempts in time.
func (l *lateness) checkPause(t *testing.T, what string, first, second deliveries.Attempt, want time.Duration) {
	t.Helper()
	due := first.Started.Add(first.Took + want)
	late := second.Started.Sub(due)
	if allowed := l.allowed(due, second.Started); late < -exact || late > allowed {
		t.Errorf("%s: attempt %d began %s after its time, want within %s", what, second.Try, late, allowed)
	}
}

// The contract's pauses, with receivers of every kind side by side.
func TestReceiversOfEveryKind(t *testing.T) {
	t.Parallel()
	s := newEnv(t) // no schedule of its own: twice 10 s
	late := s.watchLateness()
	cfg := lenient()
	cfg.Timeout = 2 * time.Second
	s.serve(cfg)
	released := make(chan struct{})
	tests := map[string]struct {
		answer   http.HandlerFunc // nil: nobody listens
		attempts int
		status   int
		text     string // within the error of the log
	}{
		"200":            {answerWith(200), 1, 200, ""},
		"204":            {answerWith(204), 1, 204, ""},
		"500":            {answerWith(500), 3, 500, ""},
		"301":            {redirect, 3, 301, ""},
		"hangs":          {func(_ http.ResponseWriter, r *http.Request) { hang(r, released) }, 3, 0, "no answer within 2s"},
		"closes":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, 0, "closed without an answer"},
		"byte by byte":   {drip, 1, 200, ""},
		"sends 1 GB":     {flood, 1, 200, ""},
		"1 GB and a 502": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway); flood(w, r) }, 3, 502, ""},
		"101":            {switchProtocols, 3, 0, "status 101"},
		"is not there":   {nil, 3, 0, "connection refused"},
	}
	type started struct {
		id job.ID
		r  *receiver
	}
	all := map[string]started{}
	for name, test := range tests {
		to, r := nowhere, (*receiver)(nil)
		if test.answer != nil {
			r = receive(t, test.answer)
			to = r.url
		}
		all[name] = started{s.complete(to), r}
	}
	for name, test := range tests {
		log := s.over(all[name].id)
		if len(log) != test.attempts {
			t.Errorf("%s: got %d attempts in the log, want %d", name, len(log), test.attempts)
		}
		if r := all[name].r; r != nil && len(r.calls()) != test.attempts {
			t.Errorf("%s: got %d calls, want %d", name, len(r.calls()), test.attempts)
		}
		checkLog(t, name, log, test.status, test.text, late)
	}
	close(released)
}

func checkLog(t *testing.T, name string, log []deliveries.Attempt, status int, text string, late *lateness) {
	t.Helper()
	for i, d := range log {
		if d.Try != i+1 || d.Status != status || !strings.Contains(d.Error, text) || (text == "") != (d.Error == "") {
			t.Errorf("%s: got attempt %+v, want number %d, status %d, error %q", name, d, i+1, status, text)
		}
		want := deliveries.Failed
		switch {
		case status >= 200 && status <= 299:
			want = deliveries.Delivered
		case i == len(log)-1:
			want = deliveries.GivenUp
		}
		if d.Outcome != want {
			t.Errorf("%s, attempt %d: got %s, want %s", name, i+1, d.Outcome, want)
		}
		if i > 0 {
			late.checkPause(t, name, log[i-1], d, retryPause)
		}
	}
}

func redirect(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(http.StatusMovedPermanently)
}

// switchProtocols answers with 101 and leaves the connection open.
func switchProtocols(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "x")
	w.WriteHeader(http.StatusSwitchingProtocols)
	_, _, _ = http.NewResponseController(w).Hijack()
}

func hang(r *http.Request, released <-chan struct{}) {
	select {
	case <-released:
	case <-r.Context().Done():
	}
}

// drip sends a byte each 100 ms for as long as somebody reads.
func drip(w http.ResponseWriter, r *http.Request) {
	for {
		_, err := w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func flood(w http.ResponseWriter, _ *http.Request) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 1024 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	late := s.watchLateness()
	s.serve(lenient())
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	log := s.over(s.complete(r.url))
	if len(log) != 2 {
		t.Fatalf("got %d attempts, want 2: one pause in the schedule", len(log))
	}
	late.checkPause(t, "after 3 s", log[0], log[1], 3*time.Second)
}

// Without a bound, 1024 receivers that hang kept as many bodies in memory.
func TestBodiesAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	cfg := lenient()
	const size, atOnce, receivers = 100_000, 2, 5
	cfg.maxMemory = size * (atOnce + 1)
	var now, most atomic.Int64
	slow := func(http.ResponseWriter, *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-time.After(200 * time.Millisecond)
		now.Add(-1)
	}
	ids := make([]job.ID, receivers)
	for i := range ids {
		ids[i] = queue.NewID(job.Async)
		s.submit(ids[i], receive(t, slow).url, json.RawMessage(`"`+strings.Repeat("x", size)+`"`))
		s.announce(s.cancel(ids[i]))
	}
	s.serve(cfg)
	for _, id := range ids {
		s.over(id)
	}
	if got := most.Load(); got > atOnce {
		t.Errorf("got %d bodies at once, want at most %d: %d bytes each of %d", got, atOnce, size, cfg.maxMemory)
	}
}
