package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// requeueHalfway makes the ttl of a waiting job longer in a process that ends
// between the two writes: the record announces a queue message that is not there.
func (s *env) requeueHalfway(t *testing.T, id job.ID, ttl time.Duration) {
	t.Helper()
	s.dying(t)(id, ttl)
}

// dying makes a process that dies in its first change of a ttl, after the record was written.
func (s *env) dying(t *testing.T) (change func(id job.ID, ttl time.Duration)) {
	t.Helper()
	ctx, crash := context.WithCancel(t.Context())
	q := s.queue(t, Config{Point: func(p Point) {
		if p == AfterRecord {
			crash()
		}
	}})
	return func(id job.ID, ttl time.Duration) {
		t.Helper()
		if _, err := q.SetTTL(ctx, s.e, id, ttl); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the change to end halfway", err)
		}
	}
}

// queuedUntil is when the server removes the job's queue message.
func (s *env) queuedUntil(t *testing.T, id job.ID) time.Time {
	t.Helper()
	msg, err := s.q.read.message(t.Context(), record.LocationOf(s.e), id)
	if err != nil {
		t.Fatal(err)
	}
	return msg.QueueExpires
}

func TestALongerTTLThatFailedHalfwayIsFinished(t *testing.T) {
	t.Parallel()
	set := func(ttl time.Duration) func(*env, job.ID) error {
		return func(s *env, id job.ID) error { _, err := s.q.SetTTL(t.Context(), s.e, id, ttl); return err }
	}
	tests := map[string]struct {
		by   func(*env, job.ID) error
		want time.Duration
	}{
		"by the same call":      {set(2 * time.Hour), 2 * time.Hour},
		"by a longer ttl":       {set(3 * time.Hour), 3 * time.Hour},
		"by a shorter ttl":      {set(90 * time.Minute), 2 * time.Hour},
		"by a look at the job":  {func(s *env, id job.ID) error { _, err := s.q.Status(t.Context(), s.e, id); return err }, 2 * time.Hour},
		"by the next of a kind": {func(s *env, id job.ID) error { s.requeueHalfway(t, id, 3*time.Hour); return set(3*time.Hour)(s, id) }, 3 * time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Hour })
			s.requeueHalfway(t, id, 2*time.Hour)
			if err := tc.by(s, id); err != nil {
				t.Fatal(err)
			}
			if got, want := s.queuedUntil(t, id), s.status(t, id).Submitted.Add(tc.want); !got.Equal(want) {
				t.Errorf("the queue has the job until %v, want %v", got, want)
			}
			if l := next(t, s.consumer(t, s.q, "w")); l.Job.ID != id || string(l.Input) != `{"n":1}` {
				t.Errorf("got job %s with input %s", l.Job.ID, l.Input)
			}
		})
	}
}

// The record has what the queue message had, so the job is not lost even if
// nobody looked at it before its first ttl ended.
func TestALongerTTLThatFailedHalfwayIsFinishedAfterTheOldTTL(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]string{"small": `{"n":1}`, "large": `{"x":"` + strings.Repeat("x", 300<<10) + `"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			change := s.dying(t)
			// A busy machine needs more than a second until the change.
			id := s.submit(t, func(r *job.Request) { r.Policy.TTL, r.Input = 8*time.Second, json.RawMessage(input) })
			change(id, time.Hour)
			s.empty(t)
			s.want(t, id, job.InQueue)
			if l := next(t, s.consumer(t, s.q, "w")); l.Job.ID != id || string(l.Input) != input {
				t.Errorf("got job %s with an input of %d bytes", l.Job.ID, len(l.Input))
			}
		})
	}
}

// A worker that gets the old message goes on from the new one: the old one
// would vanish in its hands, and with it the sign that the worker is lost.
func TestAPickUpFinishesALongerTTLThatFailedHalfway(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Hour })
	s.requeueHalfway(t, id, 2*time.Hour)
	r, err := s.q.read.record(t.Context(), record.LocationOf(s.e), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	long := func(n *record.Record) { n.Changed = n.Changed.Add(-requeueTimeout) } // it failed long ago
	if _, err := s.q.move(t.Context(), record.LocationOf(s.e), r, job.Touch, long); err != nil {
		t.Fatal(err)
	}
	l := next(t, s.consumer(t, s.q, "w"))
	if got, want := s.queuedUntil(t, id), l.Job.Submitted.Add(2*time.Hour); !got.Equal(want) {
		t.Errorf("the queue has the job until %v, want %v", got, want)
	}
	if l.rec.QueueSeq == r.QueueSeq {
		t.Errorf("the run rests on the old queue message, of sequence %d", r.QueueSeq)
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "nothing is left in the queue", func() bool { return s.Messages(t, streams.Jobs(s.e.ID)) == 0 })
}
