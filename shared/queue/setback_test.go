package queue

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// jobsDir is the folder of the endpoint's queue.
func (s *env) jobsDir(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir(), "jetstream", "*", "streams", streams.Jobs(s.e.ID)))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want the folder of the queue", found, err)
	}
	return found[0]
}

// loseQueue kills the server and starts it again with the queue as before, as
// after a power loss when the records had got to the disk and the queue had not.
func (s *env) loseQueue(t *testing.T, before string) {
	t.Helper()
	s.Kill()
	dir := s.jobsDir(t)
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(before))); err != nil {
		t.Fatal(err)
	}
	s.Start()
}

// untilBack calls until NATS answers again.
func untilBack(t *testing.T, call func() error) {
	t.Helper()
	testenv.Eventually(t, "JetStream answers", func() bool {
		err := call()
		if err != nil && !errors.Is(err, bus.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// copyJobs copies the files of the queue, for loseQueue.
func (s *env) copyJobs(t *testing.T) string {
	t.Helper()
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(s.jobsDir(t))); err != nil {
		t.Fatal(err)
	}
	return before
}

// A delivery may wait in this process for longer than the server that sent it runs.
func TestADeliveryOfAServerBeforeIsNotTakenForOneOfThis(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	before := s.copyJobs(t)
	s.submit(t)
	consumer := s.q.Remote.Consume(s.e, "a", time.Minute)
	defer consumer.Close()
	var b *Lease
	held, err := consumer.NextIf(t.Context(), func() bool {
		s.loseQueue(t, before)
		untilBack(t, func() error {
			_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: []byte(`2`)})
			return err
		})
		b = next(t, s.consumer(t, s.queue(t, Config{}), "b"))
		return true
	}, never, false)
	if err != nil || held.Job.ID == b.Job.ID || held.rec.QueueSeq != b.rec.QueueSeq {
		t.Fatalf("got %+v, %v, want the first job under the sequence of the second", held, err)
	}
	if _, err := held.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	nothing(t, s.consumer(t, s.queue(t, Config{}), "c"), 500*time.Millisecond)
	if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
		t.Errorf("got %d messages in the queue, want the running job's", n)
	}
}

// The sequences that a queue lost are given again. What is known of a job by the
// old one must not reach the job that has it now.
func TestAJobIsLeftAloneByThatWhoseSequenceItWasGiven(t *testing.T) {
	t.Parallel()
	tests := map[string]func(s *env, held *Lease) error{
		"completed": func(_ *env, held *Lease) error { _, err := held.Complete(t.Context(), nil); return err },
		"given back": func(_ *env, held *Lease) error {
			return held.Release(t.Context())
		},
		"cancelled": func(s *env, held *Lease) error {
			_, err := s.q.Cancel(t.Context(), s.e, held.Job.ID)
			return err
		},
		"timed out by another": func(s *env, held *Lease) error {
			r, err := s.q.read.record(t.Context(), record.LocationOf(s.e), held.Job.ID, 1)
			if err == nil {
				_, err = s.q.timeOut(t.Context(), record.LocationOf(s.e), r)
			}
			return err
		},
		"completed through another process": func(s *env, held *Lease) error {
			l, err := s.queue(t, Config{}).Remote.LeaseOf(t.Context(), s.e, held.Job.ID, held.Job.Worker)
			if err == nil {
				_, err = l.Complete(t.Context(), nil)
			}
			return err
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
			before := s.copyJobs(t)
			s.submit(t)
			held := next(t, s.consumer(t, s.q, "a"))
			s.loseQueue(t, before)
			var id job.ID
			untilBack(t, func() error {
				id = NewID(job.Async)
				_, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: []byte(`2`)})
				return err
			})
			b := next(t, s.consumer(t, s.queue(t, Config{}), "b"))
			if b.Job.ID != id || b.rec.QueueSeq != held.rec.QueueSeq {
				t.Fatalf("got job %s under sequence %d, want %s under %d", b.Job.ID, b.rec.QueueSeq, id, held.rec.QueueSeq)
			}
			untilBack(t, func() error { return end(s, held) })
			if err := s.NC.Flush(); err != nil {
				t.Fatal(err)
			}
			nothing(t, s.consumer(t, s.queue(t, Config{}), "c"), 500*time.Millisecond)
			if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
				t.Errorf("got %d messages in the queue, want the running job's", n)
			}
			if j, err := b.Complete(t.Context(), nil); err != nil || j.Status != job.Completed || j.Run != 1 {
				t.Errorf("got %+v, %v, want it COMPLETED by its first run", j, err)
			}
		})
	}
}
