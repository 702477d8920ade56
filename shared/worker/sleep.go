package worker

import (
	"context"
	"fmt"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// sleepTimeout bounds Config.Sleep. wakeTimeout bounds Config.Wake: it is over before the
	// autoscaler ends the worker, so that the worker says what is wrong.
	sleepTimeout = time.Minute
	wakeTimeout  = pod.WakeTimeout - 15*time.Second
)

// mode is whether a worker takes jobs.
type mode int

const (
	awake mode = iota
	// fallingAsleep workers take no more jobs; those that they had end, then Sleep is called.
	fallingAsleep
	asleep
	waking
)

// readInterval is the least pause between two looks at the pod's record: a job waits for a
// worker that sleeps, and another endpoint for the GPU of an idle worker that can sleep.
func (p *presence) readInterval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != awake || p.self.Sleeps && len(p.running) == 0 {
		return beatApart / 2
	}
	return registry.BeatEvery - beatApart/2
}

// applySleep asks the worker to sleep, or to wake, if its pod's record does. A worker that
// has a job goes on: the autoscaler takes its request back.
func (p *presence) applySleep(own pod.Pod) {
	if own.Endpoint != p.endpoint.ID || !p.self.Sleeps {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch sleeps, rests := own.Sleep.Sleeps(), p.mode == fallingAsleep || p.mode == asleep; {
	case sleeps && rests:
		p.wake.Clear() // it was asked for before this sleep
	case sleeps && p.mode == awake && len(p.running) == 0:
		p.sleep.Send()
	case rests:
		p.wake.Send()
	}
}

// enter changes the mode. What was asked before is past.
func (p *presence) enter(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	stale := p.sleep
	switch m {
	case waking:
		stale = p.wake
	case awake:
		p.idleSince = time.Now()
	case fallingAsleep, asleep:
	}
	stale.Clear()
	p.changed.Send()
}

// sleepUntilWoken lets the worker sleep until it is asked to wake; then it returns true. It
// returns false if the worker is to end instead: ctx ended, it is to drain, or it cannot sleep.
func (w *worker) sleepUntilWoken(ctx context.Context) (woken bool, err error) {
	select {
	case <-w.presence.wake: // while it ended its last jobs
		w.presence.enter(awake)
		return true, nil
	default:
	}
	within, cancel := context.WithTimeout(ctx, sleepTimeout)
	err = w.cfg.Sleep(within)
	cancel()
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		w.log.WarnContext(ctx, "the worker cannot sleep and leaves", "err", err)
		return false, nil
	}
	w.presence.enter(asleep)
	w.log.InfoContext(ctx, "worker sleeps")
	select {
	case <-ctx.Done():
		return false, nil
	case <-w.presence.drained:
		w.log.InfoContext(ctx, "draining by request", "reason", w.presence.drainReason())
		return false, nil
	case <-w.presence.wake:
	}
	w.presence.enter(waking)
	within, cancel = context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	if err := w.cfg.Wake(within); err != nil && ctx.Err() == nil {
		return false, fmt.Errorf("%w: %w", ErrWake, err)
	}
	w.presence.enter(awake)
	return ctx.Err() == nil, nil
}
