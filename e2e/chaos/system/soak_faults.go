package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

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
