package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"flightline/shared/retry"
)

func TestDelaysDoubleUpToTheBound(t *testing.T) {
	tests := []struct {
		backoff  retry.Backoff
		failures int
		want     time.Duration
	}{
		{retry.Every(time.Second), 0, 0},
		{retry.Every(time.Second), 1, time.Second},
		{retry.Every(time.Second), 1000, time.Second},
		{retry.Backoff{First: time.Second, Max: 5 * time.Second}, 1, time.Second},
		{retry.Backoff{First: time.Second, Max: 5 * time.Second}, 3, 4 * time.Second},
		{retry.Backoff{First: time.Second, Max: 5 * time.Second}, 4, 5 * time.Second},
		{retry.Backoff{First: time.Second, Max: 5 * time.Second}, 1 << 40, 5 * time.Second},
	}
	for _, test := range tests {
		if got := test.backoff.Delay(test.failures); got != test.want {
			t.Errorf("%+v after %d failures: got %s, want %s", test.backoff, test.failures, got, test.want)
		}
	}
}

func TestJitterStaysBetweenHalfAndAll(t *testing.T) {
	for range 1000 {
		if got := retry.Jitter(time.Second); got < time.Second/2 || got > time.Second {
			t.Fatalf("got %s", got)
		}
	}
	if got := retry.Jitter(0); got != 0 {
		t.Errorf("got %s of nothing", got)
	}
}

var (
	errAway  = errors.New("away")
	errFinal = errors.New("final")
)

func away(err error) bool { return errors.Is(err, errAway) }

func TestDoRepeatsUntilItSucceedsOrMayNot(t *testing.T) {
	for _, last := range []error{nil, errFinal} {
		synctest.Test(t, func(t *testing.T) {
			began, tries := time.Now(), 0
			err := retry.Do(t.Context(), retry.Backoff{First: time.Second, Max: time.Minute}, away, func() error {
				if tries++; tries < 4 {
					return errAway
				}
				return last
			})
			if took := time.Since(began); !errors.Is(err, last) || tries != 4 || took != 7*time.Second {
				t.Errorf("got %v after %d tries and %s, want %v after 4 and 7s", err, tries, took, last)
			}
		})
	}
}

func TestDoReturnsTheLastErrorWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		tries := 0
		err := retry.Do(ctx, retry.Every(time.Second), away, func() error {
			tries++
			return errAway
		})
		if !errors.Is(err, errAway) || tries != 3 {
			t.Errorf("got %v after %d tries, want %v after 3", err, tries, errAway)
		}
	})
}
