package queue

import (
	"slices"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// handedOut is what Lists.HandedOut returns, in order.
func (s *env) handedOut(t *testing.T, class job.Class) []job.ID {
	t.Helper()
	ids, err := s.q.Lists.HandedOut(t.Context(), s.e, class)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// deliver hands out n messages of a class to nobody who would pick them up.
func (s *env) deliver(t *testing.T, class job.Class, n int) {
	t.Helper()
	inbox := s.q.nc.NewInbox()
	sub, err := s.q.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sendPull(s.q.nc, s.e.ID, class, inbox, n, soon); err != nil {
		t.Fatal(err)
	}
	for range n {
		if m, err := sub.NextMsg(soon); err != nil || m.Header.Get("Status") != "" {
			t.Fatalf("got %+v, %v, want a job", m, err)
		}
	}
}

func TestJobsThatWereHandedOutAreListedAndCountedAsTheyStand(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	low := func(r *job.Request) { r.Policy.LowPriority = true }
	if got := s.handedOut(t, job.Normal); len(got) > 0 {
		t.Errorf("no job: got %v, want none", got)
	}
	done, back, runs := s.submit(t), s.submit(t), s.submit(t)
	w, v := s.consumer(t, s.q, "w"), s.consumer(t, s.q, "v")
	if _, err := next(t, w).Complete(t.Context(), []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	lease := next(t, w)
	if l := next(t, v); lease.Job.ID != back || l.Job.ID != runs {
		t.Fatalf("got %s and %s, want %s and %s", lease.Job.ID, l.Job.ID, back, runs)
	}
	w.Close()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	silent, lowly := s.submit(t), s.submit(t, low)
	if _, err := s.JS.Publish(t.Context(), streams.JobSubject(s.e.ID, job.Normal, "unreadable"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	s.deliver(t, job.Normal, 3) // the one that was given back, too
	s.deliver(t, job.LowPriority, 1)
	waits := []job.ID{s.submit(t), s.submit(t, low)}

	want := []job.ID{back, runs, silent} // ids are in the order in which they were made
	if got := s.handedOut(t, job.Normal); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v, and none of %s, %s", got, want, done, waits)
	}
	if got, want := s.handedOut(t, job.LowPriority), []job.ID{lowly}; !slices.Equal(got, want) {
		t.Errorf("low priority: got %v, want %v, and none of %s", got, want, waits)
	}
	for named, want := range map[int]Stats{
		5: {Queued: 2, QueuedLow: 1, Running: 5, RunningLow: 1}, // all are held, as far as workers say
		4: {Queued: 5, QueuedLow: 2, Running: 2},                // what cannot be read counts as handed out
	} {
		if got, err := s.q.Counts.ByStatus(t.Context(), s.e, named); err != nil || got.Stats != want {
			t.Errorf("workers name %d: got %+v, %v, want %+v", named, got, err, want)
		}
	}
}

// A message that a crash left behind a decided job is no job that waits.
func TestWhatIsDecidedIsNotCountedAsWaiting(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	s.submit(t)
	lease := next(t, s.consumer(t, s.q, "w"))
	lease.mu.Lock()
	lease.rec.AckSubject = s.q.nc.NewInbox() // its acknowledgement is lost
	lease.mu.Unlock()
	if _, err := lease.Complete(t.Context(), []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.q.Counts.ByStatus(t.Context(), s.e, 0); err != nil || got.Stats != (Stats{Running: 1}) {
		t.Errorf("got %+v, %v, want its message only", got, err)
	}
}
