package system

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// clusterScenarios have three NATS servers, two `flightline serve all` and
// workers, half of which stay with a node that is cut off.
func clusterScenarios() []scenario {
	needs := []need{needNATS}
	return []scenario{
		{
			name: "cluster-start", does: "two `serve all --replicas 3` started together on three empty NATS servers", needs: needs,
			rule: rule{end: 3 * minLease}, act: clusterStart,
		},
		{
			name: "partition", does: "each of three nodes cut off from the others, and from half of the clients, for 0.8 and 0.9 leases; jobs run through it", needs: needs,
			rule: rule{}, act: func(ctx context.Context, w *world) error { return partition(ctx, w, 8, 9) },
		},
		{
			name: "cluster-rolling-stop", does: "SIGTERM of each of two workers (64 slots) in turn under as much load as they can take, on three nodes", needs: needs,
			rule: rule{overtaken: minLease / 2, end: 2 * minLease}, act: clusterRollingStop, alone: true,
		},
		{
			name: "partition-long", does: "the same for 2 leases", needs: needs, long: true,
			rule: rule{}, act: func(ctx context.Context, w *world) error { return partition(ctx, w, 20) },
		},
		{
			name: "partitions", does: "the same for 0.5, 0.8, 1, 2 and 3 leases", needs: needs, long: true, limit: 9 * time.Minute,
			rule: rule{}, act: func(ctx context.Context, w *world) error { return partition(ctx, w, 5, 8, 10, 20, 30) },
		},
		{
			name: "cluster-host-kill", does: "kill -9 of three nodes, both servers and all workers at once under load, and a new start", needs: needs, long: true,
			rule: rule{end: 6 * minLease}, limit: 6 * time.Minute, act: clusterHostKill,
		},
	}
}

func clusterStart(ctx context.Context, w *world) error {
	if err := w.startCluster(ctx, true); err != nil {
		return err
	}
	if _, err := w.clusterWorkers(ctx, 2, workerSlots); err != nil {
		return err
	}
	return w.lightLoad(ctx, 3*time.Second, func() error { return nil })
}

func clusterRollingStop(ctx context.Context, w *world) error {
	if err := w.startCluster(ctx, false); err != nil {
		return err
	}
	return rollThrough(ctx, w)
}

// partition cuts off each node for each of these tenths of a lease. No worker
// ever loses all nodes, so no job has a cause to run twice.
func partition(ctx context.Context, w *world, tenths ...int) error {
	const workers, jobs = 6, 48
	if err := w.startCluster(ctx, false); err != nil {
		return err
	}
	if _, err := w.clusterWorkers(ctx, workers, jobs/4); err != nil { // a third of the slots stays free
		return err
	}
	gate := w.gate("partition")
	for range jobs { // their heartbeats come at different times
		if err := w.gated(ctx, 1, gate); err != nil {
			return err
		}
		wait(ctx, minLease/3/jobs)
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	total := time.Duration(0)
	for _, n := range tenths {
		total += clusterNodes * (time.Duration(n)*minLease/10 + minLease)
	}
	return w.lightLoad(ctx, total, func() error {
		for _, n := range tenths {
			for i := range clusterNodes {
				w.cut(ctx, i, time.Duration(n)*minLease/10)
				wait(ctx, minLease) // what the cut did shows within a lease
			}
		}
		return w.open(gate)
	})
}

func clusterHostKill(ctx context.Context, w *world) error {
	const workers, rounds, every = 4, 3, 8 * time.Second
	if err := w.startCluster(ctx, false); err != nil {
		return err
	}
	fleet, err := w.clusterWorkers(ctx, workers, workerSlots)
	if err != nil {
		return err
	}
	return w.lightLoad(ctx, rounds*2*every, func() error {
		for round := range rounds {
			wait(ctx, every)
			w.count("all hosts killed")
			for _, p := range fleet {
				w.book.harm(killed, p.name)
			}
			killAll(slices.Concat(fleet, w.cluster.nodes, w.cluster.servers)...)
			if err := w.renewAll(ctx, fleet, round+1, workerSlots); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	})
}
