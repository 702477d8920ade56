package deliveries

import (
	"strings"
	"testing"

	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Webhooks with large payloads take long on a slow line to NATS: they are read in parts,
// each of which comes in time.
func TestAReplayOfLargeWebhooksOverASlowLine(t *testing.T) {
	t.Parallel()
	const webhooks, bytesPerSecond = deadLetterPage, 4 << 20 // 8 MB: 2 s
	s := newEnv(t)
	from, input := s.tasks(t), `"`+strings.Repeat("x", 256<<10-2)+`"`
	for range webhooks {
		s.ended(t, input)
		if err := nextTask(t, from).DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil {
			t.Fatal(err)
		}
	}
	q, err := queue.New(t.Context(), testenv.Connect(t, testenv.Slow(t, s.Config(), bytesPerSecond)), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	slow, err := New(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := slow.Redrive(t.Context(), s.e.ID, RedriveQuery{}); n != webhooks || err != nil {
		t.Errorf("got %d webhooks replayed, %v, want all %d", n, err, webhooks)
	}
	if n := s.Messages(t, streams.Undelivered); n != 0 {
		t.Errorf("got %d messages left, want none", n)
	}
}
