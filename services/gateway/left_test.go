package gateway

import (
	"context"
	"net/http/httptrace"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// left is when the worker left a poll, as any instance reads it.
func (w *worker) left() time.Time {
	w.s.t.Helper()
	token, err := w.s.registry.Tokens.Find(w.s.t.Context(), "ep", w.id)
	must(w.s.t, err)
	return token.Disconnected
}

func TestALeftPollIsKnownUntilTheNextOneAnywhere(t *testing.T) {
	t.Parallel()
	for _, poll := range []string{"/job-take/%w?gpu=any", "/job-take-batch/%w?batch_size=2", "/job-stop/%w?gpu=any"} {
		t.Run(poll, func(t *testing.T) {
			s := newEnv(t)
			held := s.worker("w1", s.gateway(Config{Hold: patience}))
			ctx, leave := context.WithCancel(t.Context())
			sent := httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { leave() }}
			if a, err := held.try(httptrace.WithClientTrace(ctx, &sent), "GET", poll, nil); err == nil {
				t.Fatalf("got %d %s, want no answer", a.status, a.raw)
			}
			testenv.Eventually(t, "the worker left", func() bool { return !held.left().IsZero() })
			again := &worker{s: s, id: "w1", token: held.token, gates: []*instance{s.gateway(Config{})}}
			if again.send("GET", poll, nil); !again.left().IsZero() {
				t.Errorf("it polls, and left at %s", again.left())
			}
		})
	}
}

func TestPollsThatAreAnsweredWereNotLeft(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	w.send("GET", "/job-take/%w?gpu=any", nil)
	w.toStop()
	s.submit()
	w.take()
	if !w.left().IsZero() {
		t.Errorf("left at %s, want never", w.left())
	}
}

// note notes that the worker left a poll at that time.
func (w *worker) note(at time.Time) {
	w.s.t.Helper()
	token, err := w.s.registry.Tokens.Find(w.s.t.Context(), "ep", w.id)
	must(w.s.t, err)
	must(w.s.t, w.s.registry.Tokens.Disconnect(w.s.t.Context(), "ep", w.id, token.Hash, at))
}

// runs are the jobs of the endpoint's only worker; nil if it has none.
func (s *env) runs() []string {
	s.t.Helper()
	workers, err := s.registry.Workers.List(s.t.Context(), "ep")
	must(s.t, err)
	if len(workers) == 0 {
		return nil
	}
	return append([]string{}, workers[0].Running...)
}

// What outlives a killed worker pings; that keeps its job for leases, not for ever.
func TestPingsOfAWorkerThatLeftDoNotKeepItsJobForEver(t *testing.T) {
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = endpoint.MinLease })
	g := s.gateway(Config{Hold: 2 * time.Second, leftLeases: 1})
	dead, w := s.worker("w1", g), s.worker("w2", g)
	id := s.submit()
	dead.take()
	dead.ping(id)
	began := s.status(id).Started
	var left time.Time
	testenv.Eventually(t, "the job has run for a while", func() bool { left = s.queue.Now(); return left.Sub(began) > noticeTimeout })
	dead.note(left)
	taken := make(chan string, 1)
	go func() { taken <- w.take().ID }()
	pings := time.NewTicker(time.Second)
	defer pings.Stop()
	for {
		select {
		case got := <-taken:
			if later := s.queue.Now().Sub(left); got != id || later < endpoint.MinLease*3/2 {
				t.Fatalf("got %s after %s, want %s a lease after the pings of a lease", got, later, id)
			}
			w.done(id, `{"output":1}`)
			if j := s.is(id, job.Completed, "1", ""); j.Lost != 1 || j.Worker != "w2" {
				t.Errorf("got %d lost, worker %q, want 1 and w2", j.Lost, j.Worker)
			}
			return
		case <-pings.C:
			dead.ping(id)
		}
	}
}

// A note may come when the worker has a job by a later poll, and no poll any more.
func TestAJobThatBeganSinceAPollWasLeftIsKept(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	w.take()
	w.note(s.queue.Now().Add(-time.Hour))
	w.ping(id)
	testenv.Eventually(t, "the worker runs its job", func() bool { return len(s.runs()) == 1 })
}

// A note may come when the next poll is held already, also by another instance.
func TestAPollThatIsHeldRemovesTheNote(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{Hold: patience}))
	ctx, leave := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = w.try(ctx, "GET", "/job-stop/%w?gpu=any", nil)
	}()
	defer func() { leave(); <-over }()
	testenv.Eventually(t, "the poll is held", func() bool {
		w.gates[0].service.stopSignals.mu.Lock()
		defer w.gates[0].service.stopSignals.mu.Unlock()
		return len(w.gates[0].service.stopSignals.waiting) > 0
	})
	w.note(s.queue.Now())
	testenv.Eventually(t, "the note is gone", func() bool { return w.left().IsZero() })
}

func TestAWorkerThatPollsAgainIsThereAgain(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	w.note(s.queue.Now().Add(-time.Hour))
	w.ping()
	if got := s.runs(); got != nil {
		t.Errorf("before the poll: got a worker with %v, want none", got)
	}
	w.toStop()
	w.ping()
	testenv.Eventually(t, "the worker is there", func() bool { return s.runs() != nil })
}
