package gauge_test

import (
	"os"
	"testing"
	"time"

	"flightline/e2e/gauge"
)

func TestAProcessHasUsedTimeAndMemory(t *testing.T) {
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
