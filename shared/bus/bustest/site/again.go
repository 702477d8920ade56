package site

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/queue"
	"flightline/shared/registry"
)

const (
	// prepareWithin bounds one step of a preparation on a busy machine.
	prepareWithin = 30 * time.Second
	againAfter    = 50 * time.Millisecond
)

// Again repeats a step of a test's preparation that a busy machine made time
// out; any other error fails the test at once. The step must bear repeating.
func Again(t testing.TB, step func() error) {
	t.Helper()
	for end := time.Now().Add(prepareWithin); ; {
		err := step()
		if err == nil {
			return
		}
		if !late(err) || time.Now().After(end) {
			t.Fatal(err)
		}
		t.Logf("trying again: %v", err)
		<-time.After(againAfter)
	}
}

// late reports whether somebody was too slow to answer.
func late(err error) bool {
	for _, slow := range []error{queue.ErrUnavailable, registry.ErrUnavailable, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders} {
		if errors.Is(err, slow) {
			return true
		}
	}
	return false
}

// made takes a thing that a step before made, though nobody said so.
func made(err error) error {
	if errors.Is(err, registry.ErrExists) {
		return nil
	}
	return err
}
