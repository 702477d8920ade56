package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Patience counts from the first failure: an attempt that hangs for longer than
// that is followed by another one.
func TestAnAttemptThatHangsDoesNotUseUpPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, over := 0, false
		read := func(context.Context, func(int) bool) (bool, error) {
			attempts++
			if attempts == 1 {
				<-time.After(streamSilence)
				return false, fmt.Errorf("%w: silence", ErrUnreachable)
			}
			over = true
			return true, nil
		}
		for _, err := range resumed(t.Context(), patience{before: 10 * time.Second, after: time.Minute}, func() bool { return over }, read) {
			t.Errorf("got %v, want another attempt", err)
		}
		if attempts != 2 {
			t.Errorf("got %d attempts, want 2", attempts)
		}
	})
}

func TestPatienceOfAStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), error(nil)
		read := func(context.Context, func(int) bool) (bool, error) { return false, ErrUnreachable }
		for _, err := range resumed(t.Context(), patience{before: 10 * time.Second}, func() bool { return false }, read) {
			ended = err
		}
		if took := time.Since(began); ended == nil || took < 5*time.Second || took > 10*time.Second {
			t.Errorf("got %v after %v, want the error within 10 s", ended, took)
		}
	})
}
