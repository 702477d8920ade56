package testenv

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/retry"
)

const stepRetryDelay = 50 * time.Millisecond

// Retry repeats a step of a test's preparation that was late (IsLate).
// Any other error fails the test at once. The step must be idempotent.
func Retry(t testing.TB, step func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	if err := retry.Do(ctx, retry.Every(stepRetryDelay), IsLate, step); err != nil {
		t.Fatal(err)
	}
}

// IsLate reports whether err is a timeout, or says that the connection is being made
// again: a busy machine loses one now and then.
func IsLate(err error) bool {
	for _, slow := range []error{bus.ErrUnavailable, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrReconnectBufExceeded} {
		if errors.Is(err, slow) {
			return true
		}
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
