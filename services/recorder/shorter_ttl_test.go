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
			s, _ := newEnv(t)
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
			testenv.EventuallyNone(t, func() string { return s.stored(t, streams.Jobs(s.e.ID), streams.Payloads(0)) })
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

// stored says which of the streams have messages; "" if none has.
func (s *env) stored(t *testing.T, names ...string) (has string) {
	t.Helper()
	for _, name := range names {
		stream, err := s.JS.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n > 0 {
			has += fmt.Sprintf("%s has %d messages; ", name, n)
		}
	}
	return has
}
