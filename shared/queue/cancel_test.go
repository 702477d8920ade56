package queue

import (
	"context"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// The time of a call may be over once its record is written, as after a freeze of the process.
// The queue message of a cancelled job counts as a job that waits while it is there.
func TestACancelWhoseTimeEndsAfterItsRecordLeavesNoMessage(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*env, job.ID){
		"of a job that was never handed out": func(*env, job.ID) {},
		"of a job that has a record": func(s *env, id job.ID) {
			if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
				t.Error(err)
			}
		},
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			before(s, id)
			ctx, end := context.WithCancel(t.Context())
			q := s.queue(t, Config{Point: func(p Point) {
				if p == AfterTerminalWrite {
					end()
				}
			}})
			if j, err := q.Cancel(ctx, s.e, id); err != nil || j.Status != job.Cancelled {
				t.Errorf("got %+v, %v, want a cancelled job", j, err)
			}
			if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 0 {
				t.Errorf("got %d queue messages, want none", n)
			}
		})
	}
}

// The answer of the write that cancelled may be lost: the caller tries again.
func TestACancelThatIsRepeatedRemovesTheMessageThatTheFirstLeft(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	at := record.LocationOf(s.e)
	msg, err := s.q.read.message(t.Context(), at, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.move(t.Context(), at, msg, job.Cancel, nil); err != nil { // and no more
		t.Fatal(err)
	}
	if j, err := s.q.Cancel(t.Context(), s.e, id); err != nil || j.Status != job.Cancelled {
		t.Errorf("got %+v, %v, want a cancelled job", j, err)
	}
	if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 0 {
		t.Errorf("got %d queue messages, want none", n)
	}
}
