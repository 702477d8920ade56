package queue

import (
	"errors"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
)

// What an attempt counts for itself is that of no later attempt.
func TestARetryBeginsWithItsOwnCounts(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, l := s.handed(t, "w")
	if _, err := l.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.SetTTL(t.Context(), s.e, id, s.e.TTL-time.Hour); err != nil { // sets EndSeq
		t.Fatal(err)
	}
	r, err := s.q.read.record(t.Context(), record.LocationOf(s.e), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Undelivered = 2 // as two hand-outs that no worker confirmed leave it
	next, err := nextAttempt(r, s.q.Now())
	if err != nil {
		t.Fatal(err)
	}
	if next.EndSeq != 0 || next.Undelivered != 0 {
		t.Errorf("attempt 2 begins with EndSeq %d and Undelivered %d, want 0 and 0", next.EndSeq, next.Undelivered)
	}
}

// As after a 503, of which the caller cannot know what came of it.
func TestARetryThatIsRepeatedHasWhatItWanted(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, l := s.handed(t, "w")
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); !errors.Is(err, job.ErrConflict) {
		t.Errorf("of a job that runs: got %v, want job.ErrConflict", err)
	}
	if _, err := l.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		j, err := s.q.Retry(t.Context(), s.e, id, "")
		if err != nil || j.Status != job.InQueue || j.Attempt != 2 {
			t.Errorf("time %d: got %+v, %v, want attempt 2 that waits", n, j, err)
		}
	}
	if _, err := s.consumer(t, s.q, "w").Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); !errors.Is(err, job.ErrConflict) {
		t.Errorf("once it runs again: got %v, want job.ErrConflict", err)
	}
}
