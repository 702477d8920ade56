package queue

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// miscounted makes the server count one message too few of those that wait: a
// consumer is looked at again and again while messages are removed.
func (s *env) miscounted(t *testing.T) {
	t.Helper()
	const rounds, each = 200, 50
	name := streams.Jobs(s.e.ID)
	stream, err := s.JS.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(done)
	for range 4 {
		looking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = stream.Consumer(t.Context(), streams.Consumer(job.Normal))
				}
			}
		})
	}
	store := func(id string) uint64 {
		ack, err := s.JS.Publish(t.Context(), streams.JobSubject(s.e.ID, job.Normal, job.ID(id)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	for range rounds {
		var last uint64
		for range each {
			last = store("removed")
			if err := stream.DeleteMsg(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
		seq := store("counted")
		info, err := s.q.read.consumer(t.Context(), s.e.ID, job.Normal)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
		if info.Pending == 0 {
			return
		}
	}
	t.Skipf("the server counted right in %d rounds", rounds)
}

// A job that waits counts, has a wait and a place, though the server's own count
// is too low: it must ask for a worker.
func TestAJobThatTheServerDoesNotCountWaits(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.miscounted(t)
	s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	s.submit(t)
	id := s.submit(t)
	got, err := s.q.Counts.StatsNow(t.Context(), s.e)
	if want := (Stats{Queued: 3, QueuedLow: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	testenv.Eventually(t, "the wait is that of the first", func() bool {
		wait, err := s.q.Counts.OldestWait(t.Context(), s.e, job.Normal)
		return err == nil && wait > 0
	})
	if p, err := s.q.Counts.Position(t.Context(), s.e, id); err != nil || p.Least != 1 || p.Most != 1 {
		t.Errorf("got %+v, %v, want one before it", p, err)
	}
}

// A purge ends such a job, too: a fetch that does not wait brings none.
func TestAPurgeEndsAJobThatTheServerDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.miscounted(t)
	id := s.submit(t)
	if n, err := s.q.Purge(t.Context(), s.e); err != nil || n != 1 {
		t.Errorf("got %d jobs, %v, want 1", n, err)
	}
	if j := s.status(t, id); j.Status != job.Cancelled {
		t.Errorf("got %s, want CANCELLED", j.Status)
	}
}

// A job that is over does not wait, though its message is there: the server stopped
// after it took the ack, and before it removed the message.
func TestAJobThatIsOverDoesNotWaitThoughItsMessageIsThere(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	back := func() {
		s.Start()
		testenv.Eventually(t, "the server is back", func() bool {
			_, err := s.JS.Stream(t.Context(), streams.Jobs(s.e.ID))
			return err == nil && s.q.nc.Flush() == nil
		})
	}
	s.submit(t)
	lease := next(t, s.consumer(t, s.q, "w"))
	s.Stop()
	restore := s.SaveMessages(t, streams.Jobs(s.e.ID))
	back()
	if _, err := lease.Complete(t.Context(), []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "its message is removed", func() bool { return s.Messages(t, streams.Jobs(s.e.ID)) == 0 })
	s.Stop()
	restore()
	back()
	if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
		t.Fatalf("got %d messages, want the one to be back", n)
	}
	if got, err := s.q.Counts.StatsNow(t.Context(), s.e); err != nil || got != (Stats{}) {
		t.Errorf("got %+v, %v, want none", got, err)
	}
	s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	s.submit(t)
	if got, err := s.q.Counts.StatsNow(t.Context(), s.e); err != nil || got != (Stats{Queued: 2, QueuedLow: 1}) {
		t.Errorf("got %+v, %v, want the two that wait", got, err)
	}
}

// The three answers of a count are of different moments.
func TestLowPriorityJobsThatComeMeanwhileAreNoOthers(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const jobs = 500
	var submitting errgroup.Group
	submitting.Go(func() error {
		for range jobs {
			r := job.Request{Input: json.RawMessage(`{}`), Policy: job.Policy{LowPriority: true}}
			if _, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, r); err != nil {
				return err
			}
		}
		return nil
	})
	for all := 0; all < jobs; {
		got, err := s.q.Counts.StatsNow(t.Context(), s.e)
		if err != nil {
			t.Fatal(err)
		}
		if all = got.Queued; got.QueuedLow != all {
			t.Fatalf("of %d jobs %d are of low priority, want all", all, got.QueuedLow)
		}
	}
	if err := submitting.Wait(); err != nil {
		t.Fatal(err)
	}
}
