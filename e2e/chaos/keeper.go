package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"flightline/shared/queue"
)

// schedule is what the harness does to a child; its config may say that it kills
// itself.
type schedule struct {
	kill, stop time.Duration // after so long; 0: never
}

const (
	// stopTimeout is how long a worker that was asked to stop may take.
	stopTimeout = 4 * time.Second
	// restartPause keeps a child that cannot live from being started in a loop.
	restartPause = 20 * time.Millisecond
)

// keep runs children of a role one after the other until ctx ends; the last
// one lives on. next says what the n-th is like.
func (s *site) keep(ctx context.Context, role string, next func(n int) (roleConfig, schedule)) error {
	for n := 1; ctx.Err() == nil; n++ {
		cfg, f := next(n)
		c, err := s.start(role, cfg)
		if err != nil {
			return err
		}
		if !s.attend(ctx, role, c, f) {
			return nil
		}
		s.judgeEnd(role, c, cfg)
		wait(ctx, restartPause)
	}
	return nil
}

// attend lets schedule happen and reports whether the child is gone; it is not if
// ctx ended first.
func (s *site) attend(ctx context.Context, role string, c *child, f schedule) bool {
	kill, stop := after(f.kill), after(f.stop)
	for {
		select {
		case <-c.gone:
			return true
		case <-kill:
			s.tally.kill(role + " at random")
			c.kill()
		case <-stop:
			s.tally.kill(role + " asked to stop")
			c.stop()
			stop, kill = nil, after(stopTimeout)
		case <-ctx.Done():
			return false
		}
	}
}

// after is time.After, or never for 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// judgeEnd counts a death at a crash point; a child that ended by itself
// otherwise has a bug.
func (s *site) judgeEnd(role string, c *child, cfg roleConfig) {
	const bySignal = -1
	switch {
	case c.hit.Load():
	case cfg.DieAt != "" && c.cmd.ProcessState.ExitCode() == bySignal:
		s.tally.crash(cfg.DieAt)
		s.tally.kill(role + " at a crash point")
	default:
		s.fault("%s ended by itself (%s): see its log", c.name, c.cmd.ProcessState)
	}
}

// tally counts what was killed, and shares out the crash points.
type tally struct {
	mu      sync.Mutex
	crashes map[queue.Point]int
	planned map[queue.Point]int
	kills   map[string]int
}

func newTally() *tally {
	return &tally{crashes: map[queue.Point]int{}, planned: map[queue.Point]int{}, kills: map[string]int{}}
}

func (t *tally) crash(p queue.Point) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.crashes[p]++
}

func (t *tally) kill(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kills[what]++
}

// next is the point that most needs another crash.
func (t *tally) next(among []queue.Point) queue.Point {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := among[0]
	for _, p := range among {
		if t.crashes[p]+t.planned[p]/4 < t.crashes[best]+t.planned[best]/4 {
			best = p
		}
	}
	t.planned[best]++
	return best
}

// reached reports whether each point has least crashes.
func (t *tally) reached(least int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range points() {
		if t.crashes[p] < least {
			return false
		}
	}
	return true
}

// had reports whether each kind of harm was done.
func (t *tally) had(kinds []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range kinds {
		if t.kills[k] == 0 {
			return false
		}
	}
	return true
}

// points are the crash points, in the order in which a job meets them.
func points() []queue.Point {
	return []queue.Point{queue.AfterDelivery, queue.AfterRecord, queue.AfterPayload, queue.AfterTerminalWrite, queue.BeforeDelete}
}

// keepWorkers keeps count workers until ctx ends; calm says when no more
// harm is to be done to new ones.
func (s *site) keepWorkers(ctx context.Context, name string, slots []int, seed uint64, calm <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // chance, no secret
	return s.keep(ctx, "worker", func(n int) (roleConfig, schedule) {
		cfg := roleConfig{Name: fmt.Sprintf("%s-%d", name, n), Endpoints: s.endpoints, Slots: slots, Seed: seed + uint64(n)<<32} //nolint:gosec // positive
		select {
		case <-calm:
			return cfg, schedule{}
		default:
		}
		switch dice := rng.IntN(100); {
		case dice < 75:
			cfg.DieAt, cfg.DieAfter = s.tally.next(points()), 2+rng.Int64N(8)
			return cfg, schedule{kill: between(rng, 8*time.Second, 12*time.Second)} // it may never come there
		case dice < 88:
			return cfg, schedule{kill: between(rng, 500*time.Millisecond, 4*time.Second)}
		}
		return cfg, schedule{stop: between(rng, time.Second, 4*time.Second)}
	})
}

// keepAPI keeps an api instance until ctx ends.
func (s *site) keepAPI(ctx context.Context, index int, seed uint64, calm <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // chance, no secret
	crashes := []queue.Point{queue.AfterPayload, queue.AfterTerminalWrite, queue.BeforeDelete}
	return s.keep(ctx, "api", func(n int) (roleConfig, schedule) {
		cfg := roleConfig{Name: fmt.Sprintf("api%d-%d", index, n), Listen: s.apis[index]}
		select {
		case <-calm:
			return cfg, schedule{}
		default:
		}
		if rng.IntN(2) == 0 {
			cfg.DieAt, cfg.DieAfter = s.tally.next(crashes), 3+rng.Int64N(20)
		}
		return cfg, schedule{kill: between(rng, 6*time.Second, 14*time.Second)}
	})
}
