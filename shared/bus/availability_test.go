package bus

import (
	"testing"
	"time"
)

func TestElapsedCountsASuspension(t *testing.T) {
	from := time.Now()
	to := from.Add(time.Second)
	if got := Elapsed(from, to); got != time.Second {
		t.Errorf("got %v, want 1s", got)
	}
	// The wall clock went on for an hour, the monotonic one did not.
	if got := Elapsed(from, to.Round(0).Add(time.Hour)); got != time.Hour+time.Second {
		t.Errorf("got %v, want 1h0m1s", got)
	}
}

func TestTheWordOfAnotherProcessReachesBackToTheLastGap(t *testing.T) {
	s := newAvailability()
	if got := s.AgeWith(time.Hour); got != time.Hour {
		t.Errorf("a process that saw nothing yet: got %v, want 1h", got)
	}
	s.answered()
	if got := s.AgeWith(time.Hour); got != time.Hour {
		t.Errorf("a young process: got %v, want 1h", got)
	}
	s.Failed()
	s.answered()
	if got := s.AgeWith(time.Hour); got >= time.Minute {
		t.Errorf("a gap was noticed here a moment ago: got %v, want no more than since then", got)
	}
}
