package deliveries

import (
	"strings"
	"testing"

	"flightline/streams"
)

// A receiver that is away for long cannot fill the disk with what large payloads it would
// get: of a dead letter with such a payload, 2 KB are the message.
func TestCopiesOfLargePayloadsCountAsUndelivered(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	tasks, payloads := s.tasks(t), s.Messages(t, streams.Payloads(0))
	const each = 300 << 10
	for range 5 {
		s.ended(t, `{"x":"`+strings.Repeat("x", each)+`"}`)
		c := nextTask(t, tasks)
		if err := c.DeadLetter(t.Context(), ReasonGivenUp, "https://example.test"); err != nil {
			t.Fatal(err)
		}
	}
	s.eventuallyLeft(t, streams.Undelivered, 5)
	inputs := s.Messages(t, streams.Payloads(0)) - payloads - 5 // beside the copies
	trim := func(most int64, want uint64) {
		t.Helper()
		if removed, err := s.d.TrimUndelivered(t.Context(), most); err != nil || removed != want {
			t.Errorf("%d bytes: got %d removed, %v, want %d", most, removed, err, want)
		}
	}
	trim(6*each, 0)
	trim(4*each, 2)
	s.eventuallyLeft(t, streams.Undelivered, 3)
	s.eventuallyLeft(t, streams.Payloads(0), payloads+inputs+3)
	if n, err := s.d.Redrive(t.Context(), "ep", RedriveQuery{}); err != nil || n != 3 {
		t.Fatalf("got %d sent again, %v, want 3", n, err)
	}
	trim(each, 0) // what is sent again keeps its copies
	for range 3 {
		if err := nextTask(t, tasks).Load(t.Context()); err != nil {
			t.Errorf("a task that is sent again: got %v", err)
		}
	}
}
