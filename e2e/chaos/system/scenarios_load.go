package system

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"flightline/e2e/chaos/ledger"
)

// loadScenarios end processes while jobs come at a steady rate.
func loadScenarios() []scenario {
	return []scenario{
		{
			name: "rolling-stop", does: "SIGTERM of each of two workers (64 slots) in turn under as much load as they can take, each replaced at once",
			rule: rule{overtaken: minLease / 2, end: 2 * minLease}, act: rollingStop, alone: true,
		},
		{
			name: "crash-loop", does: "kill -9 of one of four workers every 0.3 s at random under load: none lives for a lease",
			rule: rule{end: 3 * minLease}, act: crashLoop,
		},
		{
			name: "host-kill", does: "kill -9 of dev and all workers at once under load, and a new start",
			rule: rule{end: 3 * minLease}, act: hostKill,
		},
		{
			name: "dev-kill", does: "kill -9 of dev alone under load, again and again; its workers live on",
			rule: rule{end: 2 * minLease}, act: devKill,
		},
		{
			name: "retry-storm", does: "dev stands still for 1.4 leases under as many jobs as it can take, each tried again until it is accepted", long: true, alone: true,
			rule: rule{end: 12 * minLease}, act: retryStorm,
		},
	}
}

// underLoad does faults while jobs are submitted at a steady rate, for d at least.
func (w *world) underLoad(ctx context.Context, rate int, d time.Duration, work func(n int) time.Duration, faults func() error) error {
	var over atomic.Bool
	enough := func(passed time.Duration) bool { return passed >= d && over.Load() }
	input := func(n int) ledger.Input { return ledger.Input{Milliseconds: int(work(n).Milliseconds())} }
	return w.during(func() { w.callers.every(ctx, time.Second/time.Duration(rate), enough, input) }, func() error {
		defer over.Store(true)
		return faults()
	})
}

// during does faults while load lasts, and returns when both are over.
func (w *world) during(load func(), faults func() error) error {
	var loading sync.WaitGroup
	loading.Go(load)
	err := faults()
	w.book.calmed()
	loading.Wait()
	return err
}

// retryStorm makes callers try thousands of submissions again at once, with no limit
// but the server's own. It must go on accepting at a tenth of its rate at least,
// replays included. A server that works on more than it can answer in time accepts
// ever less.
func retryStorm(ctx context.Context, w *world) error {
	const callers, workers = 64, 4
	input := ledger.Input{Milliseconds: 20}
	if err := w.startDev(ctx, "--limits", "off"); err != nil {
		return err
	}
	if err := w.endpoint(ctx); err != nil {
		return err
	}
	if err := w.serveHandler(nil); err != nil {
		return err
	}
	for i := range workers {
		if _, err := w.beginWorker(fmt.Sprintf("w0-%d", i), rollSlots); err != nil {
			return err
		}
	}
	acceptedIn := func(d time.Duration, during func(context.Context)) int64 {
		before := w.callers.accepts.Load()
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		during(ctx)
		return w.callers.accepts.Load() - before
	}
	calm := acceptedIn(minLease, func(ctx context.Context) { w.callers.saturate(ctx, callers, math.MaxInt, input) })
	rate := int(calm) / int(minLease/time.Second)
	w.callers.waiting = -1
	return w.underLoad(ctx, rate, 2*minLease, func(int) time.Duration { return 20 * time.Millisecond }, func() error {
		if err := w.frozen(ctx, w.dev, freezeTime); err != nil {
			return err
		}
		storm := acceptedIn(minLease, func(ctx context.Context) { <-ctx.Done() })
		w.note("%d jobs were accepted in a lease by %d callers, %d in the lease after dev stood still", calm, callers, storm)
		if storm < calm/10 {
			w.violate(ruleServes, "%d jobs are accepted in a lease of the storm, want a tenth of %d at least", storm, calm)
		}
		return nil
	})
}

// rollingStop stops one worker after the other under so much load that each is
// being handed jobs when it is asked to stop.
func rollingStop(ctx context.Context, w *world) error {
	if err := w.startDev(ctx, "--limits", "off"); err != nil {
		return err
	}
	if err := w.endpoint(ctx); err != nil {
		return err
	}
	return rollThrough(ctx, w)
}

// rollThrough stops each worker of an installation that runs, while jobs are on
// their way to it: all its slots asked at once, and more jobs wait than they
// hold. Jobs end no faster than others come, however slow submission is.
func rollThrough(ctx context.Context, w *world) error {
	const callers, backlog, tick = 32, 1000, 400 * time.Millisecond
	steps := 12
	if w.cfg.Short {
		steps = 6
	}
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	enough := func() bool { return loading.Err() != nil || w.callers.open.Load() >= rollOpen }
	if err := w.serveHandler(enough); err != nil {
		return err
	}
	fleet := make([]*process, fleetSize)
	for i := range fleet {
		if err := w.renew(fleet, i, 0, rollSlots); err != nil {
			return err
		}
	}
	load := func() {
		w.callers.saturate(loading, callers, backlog, ledger.Input{Milliseconds: 100, Tick: int(tick.Milliseconds())})
	}
	return w.during(load, func() error {
		defer endLoad()
		for i := range steps {
			if err := w.filled(ctx, fleet[i%fleetSize], tick); err != nil {
				return err
			}
			if err := w.replace(ctx, fleet, i%fleetSize, 1+i); err != nil {
				return err
			}
		}
		return nil
	})
}

// filled waits until a worker begins the first of the jobs that its free slots
// asked for. All its slots become free at each tick.
func (w *world) filled(ctx context.Context, p *process, tick time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := until(ctx, readyTimeout, func() error {
		if n := w.callers.open.Load(); n < rollOpen {
			return fmt.Errorf("%d jobs wait or run, want %d", n, rollOpen)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for range 3 { // a new worker's slots become free together at its second tick
		wait(ctx, time.Until(time.Now().Add(tick).Truncate(tick)))
		select {
		case <-w.jobs.nextRun(p.name):
		case <-ctx.Done():
			return fmt.Errorf("worker %s begins no job: %w", p.name, ctx.Err())
		}
	}
	return nil
}

const (
	// rollSlots is how many jobs a worker of rollThrough runs at once.
	rollSlots = 64
	// rollOpen is how many jobs wait or run at least while a worker is asked to stop.
	rollOpen = (fleetSize + 1) * rollSlots
	// routeDelay is how long a delivery between nodes takes at most while a worker
	// is asked to stop.
	routeDelay = 300 * time.Millisecond
)

// replace asks a worker to stop and starts another one in its place.
func (w *world) replace(ctx context.Context, fleet []*process, i, n int) error {
	old := fleet[i]
	var held sync.WaitGroup
	defer held.Wait()
	if w.cluster != nil { // jobs from another node are on their way for longer than the worker needs to hear
		held.Go(func() { w.cluster.holdRoutes(ctx, routeDelay) })
	}
	if _, err := w.harmWorker(asked, old); err != nil {
		return err
	}
	if err := w.renew(fleet, i, n, rollSlots); err != nil {
		return err
	}
	if err := old.ended(ctx, stopTimeout); err != nil {
		w.violate(ruleProcess, "%v", err)
	}
	return nil
}

// stopTimeout is how long a worker may take to stop: its grace is 10 s.
const stopTimeout = 20 * time.Second

func crashLoop(ctx context.Context, w *world) error {
	const workers, every = 4, 300 * time.Millisecond
	kills := 200
	if w.cfg.Short {
		kills = 80
	}
	if err := w.simple(ctx, "--max-lost-workers", "100"); err != nil {
		return err
	}
	var fleet []*process
	for i := range workers {
		p, err := w.worker(ctx, fmt.Sprintf("w%d", i))
		if err != nil {
			return err
		}
		fleet = append(fleet, p)
	}
	work := func(n int) time.Duration { return time.Duration(50+n%10*50) * time.Millisecond }
	return w.underLoad(ctx, 10, time.Duration(kills)*every, work, func() error {
		for i := range kills {
			wait(ctx, every)
			victim := w.rng.IntN(workers)
			if _, err := w.harmWorker(killed, fleet[victim]); err != nil {
				return err
			}
			next, err := w.beginWorker(fmt.Sprintf("w%d", workers+i), workerSlots)
			if err != nil {
				return err
			}
			fleet[victim] = next
		}
		return nil
	})
}

// fleetSize is the number of workers of fleetOf.
const fleetSize = 2

// fleetOf starts workers; their names have the number of the round.
func (w *world) fleetOf(slots, round int) (fleet []*process, err error) {
	for i := range fleetSize {
		p, err := w.beginWorker(fmt.Sprintf("w%d-%d", round, i), slots)
		if err != nil {
			return nil, err
		}
		fleet = append(fleet, p)
	}
	return fleet, nil
}

func hostKill(ctx context.Context, w *world) error {
	const slots, every = 16, 6 * time.Second // twice as many as the load needs: what waited is made up for
	rounds := 10
	if w.cfg.Short {
		rounds = 3
	}
	if err := w.simple(ctx, "--max-lost-workers", "100"); err != nil {
		return err
	}
	fleet, err := w.fleetOf(slots, 0)
	if err != nil {
		return err
	}
	work := func(n int) time.Duration { return time.Duration(50+n%10*100) * time.Millisecond }
	return w.underLoad(ctx, 30, time.Duration(rounds+1)*every, work, func() error {
		for i := range rounds {
			wait(ctx, every)
			w.count("host killed")
			for _, p := range fleet {
				w.book.harm(killed, p.name)
			}
			killAll(append(fleet, w.dev)...)
			if err := w.startDev(ctx); err != nil {
				return err
			}
			if fleet, err = w.fleetOf(slots, i+1); err != nil {
				return err
			}
		}
		return nil
	})
}

// killAll kills processes at the same moment.
func killAll(all ...*process) {
	for _, p := range all {
		p.harmed.Store(true)
		_ = p.cmd.Process.Kill() // it may be gone already
	}
	for _, p := range all {
		<-p.gone
	}
}

func devKill(ctx context.Context, w *world) error {
	const slots, every = 64, 3 * time.Second
	rounds := 30
	if w.cfg.Short {
		rounds = 6
	}
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(slots, 0); err != nil {
		return err
	}
	work := func(n int) time.Duration { return time.Duration(50+n%20*100) * time.Millisecond }
	return w.underLoad(ctx, 30, time.Duration(rounds+1)*every, work, func() error {
		for range rounds {
			wait(ctx, every)
			w.count("dev killed")
			w.dev.kill()
			if err := w.startDev(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
