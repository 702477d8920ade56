package storehealth_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/storehealth"
	"flightline/shared/testenv"
)

func TestSpaceLow(t *testing.T) {
	const gb = 1 << 30
	for _, test := range []struct {
		s       storehealth.Space
		reserve uint64
		low     bool
	}{
		{storehealth.Space{}, 0, false}, // not known
		{storehealth.Space{Free: 0, Total: 100}, 5, true},
		{storehealth.Space{Free: 4, Total: 100}, 5, true},
		{storehealth.Space{Free: 5, Total: 100}, 5, false},
		{storehealth.Space{Free: 5, Total: 100, FreeInodes: 9, Inodes: 200}, 5, true},
		{storehealth.Space{Free: 5, Total: 100, FreeInodes: 10, Inodes: 200}, 5, false},
		{storehealth.Space{FreeInodes: 999, Inodes: 1e9}, 0, true},
		{storehealth.Space{FreeInodes: 1000, Inodes: 1e9}, 0, false},
		{storehealth.Space{Free: gb - 1, Total: 1000 * gb}, gb, true},
		{storehealth.Space{Free: gb, Total: 1000 * gb}, gb, false},
	} {
		if reserve, low := test.s.Reserve(), test.s.Low(); reserve != test.reserve || low != test.low {
			t.Errorf("%+v: got a reserve of %d and low %v, want %d, %v", test.s, reserve, low, test.reserve, test.low)
		}
	}
}

// It knows what was measured last, also while it cannot be measured.
func TestShortageSaysWhatThereIsTooLittleOf(t *testing.T) {
	const kept = "are kept for jobs that were accepted"
	for s, want := range map[storehealth.Space]string{
		{Free: 4, Total: 100, FreeInodes: 1, Inodes: 200}: "4 bytes are free, and 5 " + kept,
		{Free: 5, Total: 100, FreeInodes: 1, Inodes: 200}: "1 inodes are free, and 10 " + kept,
	} {
		if got := s.Shortage(); got != want {
			t.Errorf("%+v: got %q, want %q", s, got, want)
		}
	}
}

func TestASpaceMonitorKnowsWhetherSpaceIsLow(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	var fails atomic.Bool
	free.Store(50)
	m := storehealth.NewSpaceMonitor(storehealth.SpaceConfig{Interval: time.Millisecond, Look: func(context.Context) (storehealth.Space, error) {
		if fails.Load() {
			return storehealth.Space{}, errors.New("no answer")
		}
		return storehealth.Space{Free: free.Load(), Total: 100}, nil
	}})
	if _, low := m.Low(); low {
		t.Error("nothing measured: got low")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	free.Store(3)
	testenv.Eventually(t, "it is low", func() bool { s, low := m.Low(); return low && s.Free == 3 && s.Reserve() == 5 })
	fails.Store(true)
	if _, low := m.Low(); !low {
		t.Error("got not low while it cannot be measured, want what was last known")
	}
	fails.Store(false)
	free.Store(5)
	testenv.Eventually(t, "there is space", func() bool { _, low := m.Low(); return !low })
}
