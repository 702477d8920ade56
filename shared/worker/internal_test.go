package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
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
		"not known":     {nil, bus.ErrUnavailable, ErrLost},
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
	t.Parallel()
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

func TestRepeatingInAnOutageEndsWithAFinalErrorOrItsContext(t *testing.T) {
	t.Parallel()
	away, final := bus.ErrUnavailable, errors.New("final")
	answers := []error{away, away, final}
	tries := 0
	err := retry.Do(t.Context(), outageBackoff, isOutage, func() error { tries++; return answers[tries-1] })
	if !errors.Is(err, final) || tries != 3 {
		t.Errorf("got %v after %d tries, want final after 3", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = retry.Do(ctx, outageBackoff, isOutage, func() error { cancel(); return away })
	if !errors.Is(err, away) {
		t.Errorf("got %v, want the last answer", err)
	}
}

// The autoscaler may ask for another sleep while the first one is under way.
func TestASleepThatIsAskedForAgainIsNotWoken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	sleeps := pod.Pod{Endpoint: "ep", Sleep: pod.Sleep{At: now}}
	wakes := pod.Pod{Endpoint: "ep", Sleep: pod.Sleep{At: now, Wake: now}}
	for _, m := range []mode{fallingAsleep, asleep} {
		p := &presence{endpoint: endpoint.Endpoint{ID: "ep"}, self: registry.Worker{Sleeps: true}, mode: m, sleep: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
		p.applySleep(wakes)
		p.applySleep(wakes)
		if len(p.wake) != 1 {
			t.Errorf("mode %d: got no wake", m)
		}
		p.applySleep(sleeps)
		if len(p.wake) != 0 || len(p.sleep) != 0 {
			t.Errorf("mode %d: got %d wakes, %d sleeps, want that it sleeps on", m, len(p.wake), len(p.sleep))
		}
	}
}
