package recorder

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A process that was killed during a purge has written that jobs are cancelled, and left them
// in the queue. Without a worker they counted as waiting until their retention was over.
func TestWhatAKilledPurgeLeftInTheQueueIsRemoved(t *testing.T) {
	t.Parallel()
	for name, recordedBefore := range map[string]bool{"recorded before": true, "not recorded yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := newEnv(t)
			s.e.Retention *= 1000 // its end removes them too
			submit := func() job.ID {
				id := queue.NewID(job.Async)
				if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: json.RawMessage(`1`)}); err != nil {
					t.Fatal(err)
				}
				return id
			}
			for range 3 {
				submit()
			}
			if recordedBefore {
				first := s.recorder(t, "", nil)
				s.killedPurge(t, 3)
				s.recorded(t, first)
				first.kill()
			} else {
				s.killedPurge(t, 3)
			}
			waits := submit()
			p := s.recorder(t, "", nil)
			testenv.EventuallyNone(t, func() string {
				if n := b.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
					return fmt.Sprintf("the queue has %d messages", n)
				}
				return ""
			})
			s.recorded(t, p)
			if j, err := s.q.Status(t.Context(), s.e, waits); err != nil || j.Status != job.InQueue {
				t.Errorf("what came afterwards: got %+v, %v, want it to wait", j, err)
			}
		})
	}
}

// killedPurge is a purge by a process that is killed once so many jobs are CANCELLED, and
// before the first of them is removed from the queue.
func (s *env) killedPurge(t *testing.T, jobs int) {
	t.Helper()
	nc := s.Connect(t)
	var cancelled sync.WaitGroup
	cancelled.Add(jobs)
	q := s.queue(t, nc, queue.Config{Point: func(p queue.Point) {
		if p == queue.BeforeDelete {
			cancelled.Done()
			cancelled.Wait()
			nc.Close()
		}
	}})
	_, _ = q.Purge(t.Context(), s.e) // it was killed
}
