package deliveries

import (
	"encoding/json"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// In a cluster the recorder may learn of an end from a replica before the leader has it: the
// webhook waits for that, and does not show the job as it was before.
func TestAnEndIsEnqueuedOnceTheLeaderHasIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Webhook = "https://example.test/" })
	consumer, err := s.q.Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	l, err := consumer.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := s.fact(t, id)
	last, err := s.q.Bus().LastSequence(t.Context(), streams.Records(0), streams.RecordSubject(0, s.e.ID, id, 1))
	if err != nil {
		t.Fatal(err)
	}
	end.Job.Status, end.Seq = job.Completed, last+1

	reads := testenv.Subscribe(t, s.NC, bus.DirectGet(streams.Records(0)))
	enqueued := make(chan error, 1)
	go func() { enqueued <- s.d.Enqueue(t.Context(), end) }()
	if _, err := reads.NextMsgWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	if r := s.enqueued(t, id); r.Status != job.Completed || string(r.Output) != `1` {
		t.Errorf("got %s with the output %s, want the end", r.Status, r.Output)
	}
}

// A leader that has no record may be behind: that the record is gone is known once it has caught up.
func TestThatAnEndIsGoneIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env     func(*testing.T) *env
		commits bool
	}{"one server": {newEnv, false}, "three": {newClusterEnv, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tt.env(t)
			commits := testenv.Subscribe(t, s.NC, bus.StreamPurge(streams.Records(0)))
			gone := job.Job{ID: queue.NewID(job.Async), Endpoint: s.e.ID, Attempt: 1, Status: job.Completed, Webhook: "https://example.test/"}
			if err := s.d.Enqueue(t.Context(), queue.RecordChange{Job: gone, Seq: 1}); err != nil {
				t.Fatal(err)
			}
			if err := s.NC.Flush(); err != nil {
				t.Fatal(err)
			}
			if n, _, err := commits.Pending(); err != nil || (n > 0) != tt.commits {
				t.Errorf("got %d commits, %v", n, err)
			}
			if n := s.Messages(t, streams.Webhooks); n != 0 {
				t.Errorf("got %d messages, want none", n)
			}
		})
	}
}
