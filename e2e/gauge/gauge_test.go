package gauge_test

import (
	"os"
	"testing"
	"time"

	"flightline/e2e/gauge"
)

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 3: {9, 1, 3}, 2.5: {4, 1, 2, 3}} {
		if got := gauge.Median(of); got != want {
			t.Errorf("got %v of %v, want %v", got, of, want)
		}
	}
}

func TestAProcessHasUsedTimeAndMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc here")
	}
	until := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(until) && gauge.CPUTime(os.Getpid()) == 0 {
	}
	if got := gauge.CPUTime(os.Getpid()); got <= 0 || got > time.Hour {
		t.Errorf("got %v of CPU time, want some", got)
	}
	if got := gauge.Resident(os.Getpid()); got < 1 || got > 10_000 {
		t.Errorf("got %v MB of memory, want some", got)
	}
}
