package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

var errBrokenDisk = errors.New("broken disk")

// inMemory is a store of which nothing of the stream gets to the disk. waited is called for
// each write that waits for it, and may be nil.
func (s *env) inMemory(t *testing.T, of string, waited func()) *Store {
	t.Helper()
	return s.store(t, queue.Config{Durable: func(_ context.Context, stream string) error {
		if stream != of {
			return nil
		}
		if waited != nil {
			waited()
		}
		return errBrokenDisk
	}})
}

// What follows the task is its event: no recorder looks for the end again then. A power
// loss must not take the task and leave the event.
func TestAnEndThatAnotherQueuedWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{"small": `1`, "large": `"` + strings.Repeat("x", 300<<10) + `"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t, func(r *job.Request) { r.Webhook = "https://example.test/" })
			s.complete(t, json.RawMessage(payload))
			end := s.fact(t, id)
			if err := s.d.Enqueue(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			if err := s.inMemory(t, streams.Webhooks, nil).Enqueue(t.Context(), end); !errors.Is(err, bus.ErrUnavailable) {
				t.Errorf("while nothing gets to the disk: got %v, want bus.ErrUnavailable", err)
			}
			if err := s.d.Enqueue(t.Context(), end); err != nil || s.Messages(t, streams.Webhooks) != 1 {
				t.Errorf("got %v and %d tasks, want one", err, s.Messages(t, streams.Webhooks))
			}
		})
	}
}

func TestAReplayThatAnotherQueuedWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.ended(t, `1`)
	if err := s.inMemory(t, streams.Webhooks, nil).Reenqueue(t.Context(), s.e, id); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("while nothing gets to the disk: got %v, want bus.ErrUnavailable", err)
	}
}

// A power loss must not take a task and leave the removal of its dead letter.
func TestADeadLetterStaysUntilItsReplayIsOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.ended(t, `1`)
	if err := nextTask(t, s.tasks(t)).DeadLetter(t.Context(), ReasonPaused, "https://a:443"); err != nil {
		t.Fatal(err)
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n, err := s.inMemory(t, streams.Webhooks, cancel).Redrive(ctx, "ep", RedriveQuery{Job: id}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %d, %v, want context.Canceled", n, err)
	}
	s.eventuallyLeft(t, streams.Webhooks, 1)
	if n, err := s.inMemory(t, streams.Webhooks, nil).Redrive(t.Context(), "ep", RedriveQuery{Job: id}); n != 0 || !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("while nothing gets to the disk: got %d, %v, want bus.ErrUnavailable", n, err)
	}
	if got := s.Messages(t, streams.Undelivered); got != 1 {
		t.Errorf("got %d dead letters while nothing gets to the disk, want one", got)
	}
	if n, err := s.d.Redrive(t.Context(), "ep", RedriveQuery{Job: id}); n != 1 || err != nil || s.Messages(t, streams.Undelivered) != 0 {
		t.Errorf("got %d, %v, want one moved", n, err)
	}
}

// A task is removed, or moved, by what the log has: a power loss must not take that alone.
func TestWhatTheLogHasOfATaskIsOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.ended(t, `1`)
	c := nextTask(t, s.tasks(t))
	if err := s.d.Append(t.Context(), Attempt{Endpoint: "ep", Job: id, Attempt: 1, Try: 1, Outcome: Delivered}, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := s.inMemory(t, streams.Deliveries, nil).Last(t.Context(), c); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("while nothing gets to the disk: got %+v, %v, want bus.ErrUnavailable", got, err)
	}
	if got, err := s.d.Last(t.Context(), c); err != nil || got.Outcome != Delivered {
		t.Errorf("got %+v, %v, want it delivered", got, err)
	}
}
