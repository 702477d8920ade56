package queue

import (
	"fmt"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

func TestTheOldestWaitIsThatOfTheFirstWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	oldest := func(class job.Class) time.Duration {
		t.Helper()
		got, err := s.q.Counts.OldestWait(t.Context(), s.e, class)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := oldest(job.Normal); got != 0 {
		t.Errorf("no job: got %s, want 0", got)
	}
	s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	if got := oldest(job.Normal); got != 0 {
		t.Errorf("a low-priority job only: got %s, want 0", got)
	}
	s.submit(t)
	<-time.After(300 * time.Millisecond)
	between := time.Now()
	s.submit(t)
	first := oldest(job.Normal)
	if first < 300*time.Millisecond {
		t.Errorf("the first of two: got %s, want 300 ms and more", first)
	}
	consumer, err := s.q.Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	if _, err := consumer.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(t, func() string { // it is computed from counts that a slow server takes one after the other
		if got, most := oldest(job.Normal), time.Since(between)+100*time.Millisecond; got == 0 || got > most {
			return fmt.Sprintf("the second of two: got %s, want more than 0 and %s at most", got, most)
		}
		return ""
	})
	// A slow machine may have handed out the others too. They are given back, and count as
	// running until they are handed out again, for which there is no slot.
	testenv.EventuallyNone(t, func() string {
		stats, err := s.q.Counts.StatsNow(t.Context(), s.e)
		if err != nil || stats.Running == stats.RunningLow || stats.Running+stats.Queued != 3 || stats.RunningLow+stats.QueuedLow != 1 {
			return fmt.Sprintf("got %+v, %v, want three jobs, one of them of low priority, and that another one runs", stats, err)
		}
		return ""
	})
}
