package queue

import (
	"errors"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

func (s *env) pause(t *testing.T, d time.Duration) {
	t.Helper()
	s.e.PausedUntil = s.q.Now().Add(d)
	if err := s.q.ApplyPause(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
}

func (s *env) resume(t *testing.T) {
	t.Helper()
	s.e.PausedUntil = time.Time{}
	if err := s.q.ApplyPause(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
}

// While paused, jobs are accepted and none is handed out, also to a worker that
// was waiting before; those that run keep their lease and end.
func TestAPausedEndpointHandsNothingOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	w := s.consumer(t, s.q, "w")
	l := next(t, w)
	got := make(chan *Lease, 1)
	other := s.consumer(t, s.q, "other")
	go func() {
		l, _ := other.Next(t.Context())
		got <- l
	}()
	s.pause(t, time.Hour)
	waiting := s.submit(t)
	low := s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	nothing(t, w, 3*s.e.Lease)
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	s.want(t, running, job.InProgress)
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Errorf("complete: %v", err)
	}
	s.want(t, waiting, job.InQueue)
	p, err := s.q.Counts.Position(t.Context(), s.e, low)
	if err != nil || p.Most != 1 {
		t.Errorf("got %+v, %v; want one before it", p, err)
	}
	s.resume(t)
	handed := map[job.ID]bool{} // in which order depends on whose pulls are open
	select {
	case l := <-got:
		if l == nil {
			t.Fatal("the worker that waited before the pause got nothing")
		}
		handed[l.Job.ID] = true
		if _, err := l.Complete(t.Context(), nil); err != nil { // else it comes again after a lease
			t.Errorf("complete: %v", err)
		}
	case <-time.After(soon):
		t.Fatal("nothing was handed out after the pause")
	}
	if handed[next(t, w).Job.ID] = true; !handed[waiting] || !handed[low] {
		t.Errorf("got %v, want both that waited", handed)
	}
}

// Nobody has to do anything for a pause to end.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.pause(t, 2*time.Second)
	id := s.submit(t)
	w := s.consumer(t, s.q, "w")
	nothing(t, w, time.Second)
	if l := next(t, w); l.Job.ID != id {
		t.Errorf("got %s, want %s", l.Job.ID, id)
	}
	if now := s.q.Now(); s.e.PausedUntil.Sub(now) > 100*time.Millisecond { // the clock of who handed it out may differ
		t.Errorf("handed out at %v, long before %v", now, s.e.PausedUntil)
	}
}

func TestCancelAndTTLHoldWhilePaused(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.deadlines(t)
	s.pause(t, time.Hour)
	id := s.submit(t)
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	s.want(t, id, job.Cancelled)
	short := s.submit(t)
	if _, err := s.q.SetTTL(t.Context(), s.e, short, time.Millisecond); err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the ttl ends it", func() bool {
		_, err := s.q.Status(t.Context(), s.e, short)
		return errors.Is(err, job.ErrNotFound)
	})
}

// The consumers say that nothing waits; the purge finds it all the same, and
// spares what runs.
func TestPurgeOfAPausedEndpoint(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	s.pause(t, time.Hour)
	const n = 600
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = s.submit(t, func(r *job.Request) { r.Policy.LowPriority = i%3 == 0 })
	}
	removed, err := s.q.Purge(t.Context(), s.e)
	if err != nil || removed != n {
		t.Fatalf("removed %d, %v; want %d", removed, err, n)
	}
	s.want(t, ids[0], job.Cancelled)
	s.want(t, ids[n-1], job.Cancelled)
	s.want(t, running, job.InProgress)
	if removed, err := s.q.Purge(t.Context(), s.e); err != nil || removed != 0 {
		t.Errorf("again: %d, %v", removed, err)
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.want(t, running, job.Completed)
}

func TestDeletingAPausedEndpointCancelsItsJobs(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	next(t, s.consumer(t, s.q, "w"))
	s.pause(t, time.Hour)
	waiting := s.submit(t)
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.want(t, running, job.Cancelled)
	s.want(t, waiting, job.Cancelled)
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Errorf("again: %v", err)
	}
}
