package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"flightline/e2e/chaos/ledger"
)

// Soak is a long test: a steady load, and all faults in turn.
type Soak struct {
	Nodes int           // 1: `flightline dev`; 3: three NATS servers
	Jobs  int           // how many are submitted
	For   time.Duration // in which time
}

const (
	// soakInterval is the time from one fault to the next.
	soakInterval = 20 * time.Second
	// retireAfter is how long an ended job is remembered whole. A run that begins
	// later is still noticed.
	retireAfter = 2 * time.Minute
	soakWorkers = 4
	soakSlots   = 32
	// soakEnd is how long a job may take: a worker may be frozen for two leases,
	// and faults follow one another.
	soakEnd = 9 * minLease
)

// fault is one kind of fault of a soak; n counts the faults before it.
type fault func(ctx context.Context, n int) error

// Run runs the test and returns its result. Each minute it prints a line.
func (k Soak) Run(ctx context.Context, cfg Config, out io.Writer) (*Result, error) {
	s := scenario{
		name: fmt.Sprintf("soak-%d", k.Nodes), rule: rule{end: soakEnd}, limit: k.For + 10*time.Minute,
		does: fmt.Sprintf("%d node(s), %s, a fault every %s", k.Nodes, k.For, soakInterval),
		act:  func(ctx context.Context, w *world) error { return k.act(ctx, w, out) },
	}
	return s.perform(ctx, cfg)
}

func (k Soak) act(ctx context.Context, w *world, out io.Writer) error {
	faults, err := k.begin(ctx, w)
	if err != nil {
		return err
	}
	interval := k.For / time.Duration(max(1, k.Jobs))
	w.callers.waiting = -1
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	load := func() {
		enough := func(passed time.Duration) bool { return passed >= k.For }
		w.callers.every(loading, interval, enough, func(n int) ledger.Input { return ledger.Input{Milliseconds: soakWork(n)} })
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go w.watch(watching, out)
	err = w.during(load, func() error {
		end := time.Now().Add(k.For)
		for n := 0; wait(ctx, soakInterval) && time.Until(end) > soakInterval; n++ {
			if err := faults[n%len(faults)](ctx, n); err != nil {
				endLoad()
				return fmt.Errorf("fault %d: %w", n, err)
			}
		}
		return nil
	})
	if err == nil {
		w.settle(ctx) // before endLoad, which ends the following of jobs too
	}
	return err
}

// soakWork is how long job n works, in milliseconds: most are short, one in 50
// takes seconds, and one in 1000 longer than a lease.
func soakWork(n int) int {
	switch {
	case n%1000 == 0:
		return int(minLease.Milliseconds()) * 3 / 2
	case n%50 == 0:
		return 2000
	}
	return 20 + n%7*20
}

// begin starts the installation, and returns the faults that are done to it.
func (k Soak) begin(ctx context.Context, w *world) (faults []fault, err error) {
	if err := w.serveHandler(nil); err != nil {
		return nil, err
	}
	if k.Nodes == 3 {
		if err := w.startCluster(ctx, false); err != nil {
			return nil, err
		}
		fleet, err := w.clusterWorkers(ctx, soakWorkers, soakSlots)
		return append(w.workerFaults(fleet), w.clusterFaults(fleet)...), err
	}
	if err := w.startDev(ctx, "--limits", "off"); err != nil {
		return nil, err
	}
	if err := w.endpoint(ctx, "--max-lost-workers", "100"); err != nil {
		return nil, err
	}
	fleet := make([]*process, soakWorkers)
	for i := range fleet {
		if fleet[i], err = w.beginWorker(fmt.Sprintf("w0-%d", i), soakSlots); err != nil {
			return nil, err
		}
	}
	return append(w.workerFaults(fleet), w.devFaults(fleet)...), nil
}

// watch retires jobs that ended long ago and prints a line each minute.
func (w *world) watch(ctx context.Context, out io.Writer) {
	const retireInterval = 10 * time.Second
	for n := 1; wait(ctx, retireInterval); n++ {
		w.book.retire(time.Now().Add(-retireAfter))
		if n%6 == 0 {
			w.book.mu.Lock()
			sums, open := w.book.sums, len(w.book.jobs)
			w.book.mu.Unlock()
			w.mu.Lock()
			faults := list(w.done)
			w.mu.Unlock()
			_, _ = fmt.Fprintf(out, "  after %s: %d jobs judged, %d remembered, lost %d, ran again %d, finished twice %d, without cause %d, late %d; faults: %s\n",
				time.Duration(n)*retireInterval, sums.Accepted, open, sums.Lost, sums.Reruns, sums.Doubled, sums.Uncaused, sums.Late, faults)
		}
	}
}

// renew starts another worker in the place of an ended one.
func (w *world) renew(fleet []*process, i, n, slots int) (err error) {
	if w.cluster != nil {
		w.workerEnv = w.cluster.busEnv(i)
	}
	fleet[i], err = w.beginWorker(fmt.Sprintf("w%d-%d", n, i), slots)
	return err
}

// workerFaults kill, stop and freeze one worker after the other.
func (w *world) workerFaults(fleet []*process) []fault {
	return []fault{
		func(_ context.Context, n int) error {
			i := n % len(fleet)
			_, err := w.harmWorker(killed, fleet[i])
			return errors.Join(err, w.renew(fleet, i, n+1, soakSlots))
		},
		func(ctx context.Context, n int) error {
			i := n % len(fleet)
			old := fleet[i]
			if _, err := w.harmWorker(asked, old); err != nil {
				return err
			}
			if err := old.ended(ctx, stopTimeout); err != nil {
				w.violate(ruleProcess, "%v", err)
			}
			return w.renew(fleet, i, n+1, soakSlots)
		},
		func(ctx context.Context, n int) error {
			p := fleet[n%len(fleet)]
			over, err := w.harmWorker(frozen, p)
			if err != nil {
				return err
			}
			wait(ctx, 2*minLease)
			over()
			return p.thaw()
		},
	}
}

// devFaults are those of an installation that is one `flightline dev`.
func (w *world) devFaults(fleet []*process) []fault {
	return []fault{
		func(ctx context.Context, _ int) error { return w.frozen(ctx, w.dev, minLease/2) },
		func(ctx context.Context, _ int) error { return w.frozen(ctx, w.dev, freezeTime) },
		func(ctx context.Context, _ int) error {
			w.count("dev killed")
			w.dev.kill()
			return w.startDev(ctx)
		},
		func(ctx context.Context, _ int) error {
			w.count("dev asked to stop")
			if err := errors.Join(w.dev.ask(), w.dev.ended(ctx, readyTimeout)); err != nil {
				return err
			}
			return w.startDev(ctx)
		},
		func(ctx context.Context, _ int) error {
			w.dev.kill()
			w.count("blocks torn")
			if err := w.tearBlocks(); err != nil {
				return err
			}
			return w.startDev(ctx)
		},
		func(ctx context.Context, n int) error {
			w.count("host killed")
			for _, p := range fleet {
				w.book.harm(killed, p.name)
			}
			killAll(slices.Concat(fleet, []*process{w.dev})...)
			err := w.startDev(ctx)
			for i := range fleet {
				err = errors.Join(err, w.renew(fleet, i, n+1, soakSlots))
			}
			return err
		},
	}
}

// clusterFaults are those of three NATS servers and two servers.
func (w *world) clusterFaults(fleet []*process) []fault {
	c := w.cluster
	faults := []fault{
		func(ctx context.Context, n int) error {
			i := n % clusterNodes
			w.count("node killed")
			c.nodes[i].kill()
			wait(ctx, minLease/2)
			return w.startNode(i)
		},
		func(ctx context.Context, n int) error {
			i := n % clusterNodes
			w.count("node frozen")
			err := c.nodes[i].freeze()
			wait(ctx, minLease*8/10)
			return errors.Join(err, c.nodes[i].thaw())
		},
		func(_ context.Context, n int) error {
			i := n % clusterServers
			w.count("server killed")
			c.servers[i].kill()
			return w.startServer(i)
		},
		func(ctx context.Context, n int) error {
			i := n % clusterServers
			w.count("server asked to stop")
			if err := errors.Join(c.servers[i].ask(), c.servers[i].ended(ctx, readyTimeout)); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
			return w.startServer(i)
		},
		func(ctx context.Context, n int) error {
			w.count("all hosts killed")
			for _, p := range fleet {
				w.book.harm(killed, p.name)
			}
			killAll(slices.Concat(fleet, c.nodes, c.servers)...)
			return w.renewAll(ctx, fleet, n+1, soakSlots)
		},
	}
	for _, d := range []time.Duration{minLease / 2, minLease * 8 / 10, minLease, 2 * minLease} {
		faults = append(faults, func(ctx context.Context, n int) error {
			w.cut(ctx, n%clusterNodes, d)
			return nil
		})
	}
	return faults
}

// renewAll starts nodes and servers that were killed, and workers once those are
// ready: a worker that finds no NATS ends, for its supervisor to start it again.
func (w *world) renewAll(ctx context.Context, fleet []*process, n, slots int) (err error) {
	for i := range clusterNodes {
		err = errors.Join(err, w.startNode(i))
	}
	for i := range clusterServers {
		err = errors.Join(err, w.startServer(i))
	}
	for i := range clusterServers {
		err = errors.Join(err, w.serverReady(ctx, i))
	}
	for i := range fleet {
		err = errors.Join(err, w.renew(fleet, i, n, slots))
	}
	return err
}
