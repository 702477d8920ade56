package recorder

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A job is counted, and keeps its endpoint from being deleted, while its queue message
// is there, whose own age cannot be changed.
func TestAShorterTTLRemovesWhatTheJobLeaves(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, s *env){
		"waiting":                         func(*testing.T, *env) {},
		"held by a process that vanished": takeAndVanish,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := newEnv(t)
			id := queue.NewID(job.Async)
			input := json.RawMessage(`{"n":` + string(big) + `}`) // stored beside the message
			if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: input}); err != nil {
				t.Fatal(err)
			}
			before(t, s)
			const shorter = 5 * time.Second
			if _, err := s.q.SetTTL(t.Context(), s.e, id, shorter); err != nil {
				t.Fatal(err)
			}
			s.recorder(t, "", nil)
			testenv.EventuallyNone(t, func() string {
				if jobs, payloads := b.Messages(t, streams.Jobs(s.e.ID)), b.Messages(t, streams.Payloads(0)); jobs+payloads > 0 {
					return fmt.Sprintf("the queue has %d messages, and there are %d of payloads", jobs, payloads)
				}
				return ""
			})
		})
	}
}

// takeAndVanish takes the job, and never says anything of it again.
func takeAndVanish(t *testing.T, s *env) {
	t.Helper()
	nc := s.Connect(t)
	consumer, err := s.queue(t, nc, queue.Config{}).Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	player{s, t, consumer}.next()
	nc.Close()
}
