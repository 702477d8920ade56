package site

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"flightline/shared/queue"
	"flightline/shared/registry"
)

func TestAgainRepeatsWhatWasLate(t *testing.T) {
	left := []error{fmt.Errorf("put: %w", registry.ErrUnavailable), queue.ErrUnavailable, context.DeadlineExceeded, nil}
	Again(t, func() error {
		err := left[0]
		left = left[1:]
		return err
	})
	if len(left) != 0 {
		t.Errorf("got %d steps left, want none", len(left))
	}
	for _, err := range []error{registry.ErrConflict, errors.New("no such bucket")} {
		if late(err) {
			t.Errorf("%v: got late, want it told at once", err)
		}
	}
	if err := made(fmt.Errorf("create: %w", registry.ErrExists)); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
