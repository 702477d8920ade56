package queue

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// forget waits until the attempt of f is forgotten.
func (s *env) forget(t *testing.T, q *Queue, f RecordChange) {
	t.Helper()
	testenv.Eventually(t, "the attempt is forgotten", func() bool {
		done, err := q.Changes.Remove(t.Context(), f.Partition, f.Seq)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
}

func TestForgetLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = 3 * time.Second })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	consumer := s.consumer(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	l := next(t, consumer)
	for range 3 {
		if err := l.Emit(t.Context(), json.RawMessage(`{"output":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	f := facts[len(facts)-1]
	if done, err := q.Changes.Remove(t.Context(), 0, f.Seq); done || err != nil {
		t.Fatalf("within its retention: got %t, %v", done, err)
	}
	s.forget(t, q, f)
	for _, stream := range []string{streams.Records(0), streams.Payloads(0), streams.Output(0), streams.Jobs(s.e.ID)} {
		if n := s.Messages(t, stream); n != 0 {
			t.Errorf("%s: got %d messages left", stream, n)
		}
	}
	s.forget(t, q, f) // again: it is done
}

// A message that a crash left behind must be gone before the record that
// decides about it is.
func TestForgetRemovesALeftOverMessageFirst(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention, e.Lease = time.Second, time.Minute })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	l.rec.AckSubject = "nobody.hears" // the crash
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	f := facts[len(facts)-1]
	testenv.Eventually(t, "the message is removed while the record stays", func() bool {
		done, err := q.Changes.Remove(t.Context(), 0, f.Seq)
		if err != nil || done {
			t.Fatalf("got %t, %v", done, err)
		}
		return s.Messages(t, streams.Jobs(s.e.ID)) == 0
	})
	if n := s.Messages(t, streams.Records(0)); n != 1 {
		t.Errorf("got %d records, want the one", n)
	}
	s.forget(t, q, f)
	if n := s.Messages(t, streams.Records(0)); n != 0 {
		t.Errorf("got %d records left", n)
	}
}

func TestForgetKeepsWhatALaterAttemptNeeds(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = 3 * time.Second })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	consumer := s.consumer(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	if _, err := next(t, consumer).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	s.forget(t, q, facts[len(facts)-1])
	l := next(t, consumer)
	if string(l.Input) != string(big) {
		t.Errorf("got an input of %d bytes, want %d", len(l.Input), len(big))
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts = factsOf(t, q, 0, func(f RecordChange) bool { return over(id)(f) && f.Job.Attempt == 2 })
	s.forget(t, q, facts[len(facts)-1])
	for _, stream := range []string{streams.Records(0), streams.Payloads(0)} {
		if n := s.Messages(t, stream); n != 0 {
			t.Errorf("%s: got %d messages left", stream, n)
		}
	}
}

func TestForgetSparesWhatGoesOn(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	facts := factsOf(t, q, 0, func(f RecordChange) bool { return f.Job.ID == id })
	if done, err := q.Changes.Remove(t.Context(), 0, facts[0].Seq); !done || err != nil {
		t.Errorf("a running job's write: got %t, %v; want nothing to do", done, err)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatalf("the job was not spared: %v", err)
	}
	s.want(t, id, job.Completed)
}

func TestALargeInputGoesWhenNobodyWillAskForIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	ends := map[string]struct {
		end  func(l *Lease, id job.ID) error
		left bool
	}{
		"completed": {func(l *Lease, _ job.ID) error { _, err := l.Complete(t.Context(), nil); return err }, false},
		"cancelled": {func(_ *Lease, id job.ID) error { _, err := s.q.Cancel(t.Context(), s.e, id); return err }, false},
		"failed":    {func(l *Lease, _ job.ID) error { _, err := l.Fail(t.Context(), "no"); return err }, true},
	}
	for name, tc := range ends {
		id := s.submit(t, func(r *job.Request) { r.Input = big })
		if err := tc.end(next(t, consumer), id); err != nil {
			t.Fatal(name, err)
		}
		facts := factsOf(t, s.q, 0, over(id))
		if err := s.q.Changes.RemoveUnneededInput(t.Context(), facts[len(facts)-1]); err != nil {
			t.Fatal(name, err)
		}
		if left := s.Messages(t, streams.Payloads(0)) > 0; left != tc.left {
			t.Errorf("%s: got the input left %t, want %t", name, left, tc.left)
		}
		if err := s.q.bus.Purge(t.Context(), streams.Payloads(0), streams.AnyPayload(0, s.e.ID, id)); err != nil {
			t.Fatal(err)
		}
	}
}

// A run that stored its output and then lost the job leaves parts that no
// record names.
func TestForgetFindsAnOutputThatNoRecordNames(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = time.Second })
	q := s.queue(t, Config{RemovalGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	if _, err := s.q.payloads.store(t.Context(), record.LocationOf(s.e), l.rec, streams.Out, make([]byte, 300<<10), l.rec.RemovedAfter()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	s.forget(t, q, facts[len(facts)-1])
	if n := s.Messages(t, streams.Payloads(0)); n != 0 {
		t.Errorf("got %d messages of payloads left", n)
	}
}
