package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestRetryRepeatsWhatWasLate(t *testing.T) {
	left := []error{fmt.Errorf("put: %w", bus.ErrUnavailable), bus.ErrUnavailable, context.DeadlineExceeded, nil}
	testenv.Retry(t, func() error {
		err := left[0]
		left = left[1:]
		return err
	})
	if len(left) != 0 {
		t.Errorf("got %d steps left, want none", len(left))
	}
	for _, err := range []error{registry.ErrConflict, errors.New("no such bucket")} {
		if testenv.IsLate(err) {
			t.Errorf("%v: got late, want it told at once", err)
		}
	}
	if err := made(fmt.Errorf("create: %w", registry.ErrExists)); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
