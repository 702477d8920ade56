package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
)

func TestLossOf(t *testing.T) {
	held := &job.Job{Attempt: 1}
	tests := map[string]struct {
		now  *job.Job
		err  error
		want error
	}{
		"cancelled":     {&job.Job{Attempt: 1, Status: job.Cancelled}, nil, ErrCancelled},
		"timed out":     {&job.Job{Attempt: 1, Status: job.TimedOut}, nil, ErrDeadline},
		"gone":          {nil, job.ErrNotFound, ErrExpired},
		"taken over":    {&job.Job{Attempt: 1, Status: job.InProgress}, nil, ErrLost},
		"given up":      {&job.Job{Attempt: 1, Status: job.Failed}, nil, ErrLost},
		"retried since": {&job.Job{Attempt: 2, Status: job.Cancelled}, nil, ErrLost},
		"not known":     {nil, queue.ErrUnavailable, ErrLost},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lossOf(held, tt.now, tt.err); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTheFirstLimitEndsTheRun(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for name, tt := range map[string]struct {
		lim  limits
		at   time.Time
		want error
	}{
		"deadline":     {limits{early, late}, early, ErrDeadline},
		"ttl":          {limits{late, early}, early, ErrExpired},
		"both: no job": {limits{early, early}, early, ErrExpired},
	} {
		if at, why := tt.lim.first(); !at.Equal(tt.at) || !errors.Is(why, tt.want) {
			t.Errorf("%s: got %v %v, want %v %v", name, at, why, tt.at, tt.want)
		}
	}
}

func TestPersistEndsWithAFinalErrorOrItsContext(t *testing.T) {
	away, final := queue.ErrUnavailable, errors.New("final")
	answers := []error{away, away, final}
	tries := 0
	err := persist(t.Context(), known, func() error { tries++; return answers[tries-1] })
	if !errors.Is(err, final) || tries != 3 {
		t.Errorf("got %v after %d tries, want final after 3", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = persist(ctx, known, func() error { cancel(); return away })
	if !errors.Is(err, away) {
		t.Errorf("got %v, want the last answer", err)
	}
}

func TestMemoryIsTheContainersIfItIsLimited(t *testing.T) {
	for text, want := range map[string]uint64{"": 1000, "max\n": 1000, "400\n": 400, "9223372036854771712\n": 1000, "0": 1000} {
		if got := memoryOf(1000, []string{filepath.Join(t.TempDir(), "absent"), file(t, "memory.max", text)}); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestGPUsAreThoseOfTheDriver(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"version":                       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:00:00 UTC 2025\nGCC version: gcc 12\n",
		"gpus/0000:19:00.0/information": "Model: \t\t NVIDIA H200\nIRQ:   \t\t 76\nGPU UUID: \t GPU-0a1b\nBus Type: \t PCIe\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, driver := gpusIn(dir)
	if len(got) != 1 || got[0].Name != "NVIDIA H200" || got[0].UUID != "GPU-0a1b" || driver != "570.124.06" {
		t.Errorf("got %+v, driver %q", got, driver)
	}
	if got, driver := gpusIn(filepath.Join(dir, "absent")); len(got) != 0 || driver != "" {
		t.Errorf("got %+v, driver %q, want none", got, driver)
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
