package deliveries

import (
	"errors"
	"strings"
	"testing"

	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A replica that lags is no proof that a payload is gone: the leader has it.
func TestAPayloadIsReadThoughAReplicaLags(t *testing.T) {
	t.Parallel()
	s := newClusterEnv(t)
	input := `{"x":"` + strings.Repeat("x", 2*record.PartSize) + `"}`
	id, from := s.ended(t, input), s.tasks(t)
	c := nextTask(t, from)
	s.lagging(t, streams.Payloads(0))
	if err := c.Load(t.Context()); err != nil || string(c.Input) != input {
		t.Fatalf("got %d bytes, %v, want %d", len(c.Input), err, len(input))
	}
	c.Ack(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	testenv.Retry(t, func() error { return s.d.Reenqueue(t.Context(), s.e, id) })
	if c = nextTask(t, from); c.Load(t.Context()) != nil || string(c.Input) != input {
		t.Errorf("announced again: got %d bytes of input, want %d", len(c.Input), len(input))
	}
	if err := s.q.Bus().Purge(t.Context(), streams.Payloads(0), "kept.>"); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(t.Context()); !errors.Is(err, record.ErrPayloadGone) {
		t.Errorf("got %v, want %v", err, record.ErrPayloadGone)
	}
}
