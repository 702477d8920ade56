package queue

import (
	"testing"
	"time"

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
	r, err := s.q.ReadAttempt(t.Context(), record.LocationOf(s.e), id, 1)
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
