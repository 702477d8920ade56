package system

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"flightline/e2e/chaos/ledger"
)

// scalerScenarios have no worker but those that dev's autoscaler starts: its
// default rule, QUEUE_DELAY, with no worker while there is no job.
func scalerScenarios() []scenario {
	return []scenario{
		{
			name: "scaler-kill", does: "kill -9 of the only worker, which the autoscaler started (default settings), while it runs the only job",
			rule: rule{end: 3 * minLease}, act: scalerKill,
		},
		{
			name: "scaler-restart", does: "SIGTERM of dev while a worker of its autoscaler runs the only job, and a new start",
			rule: rule{end: 3 * minLease}, act: scalerRestart,
		},
		{
			name: "scaler-storm", does: "kill -9 of each worker of the autoscaler every 4 s under load",
			rule: rule{end: 6 * minLease}, long: true, act: scalerStorm,
		},
	}
}

// scaled starts dev with an endpoint whose workers the autoscaler starts.
func (w *world) scaled(ctx context.Context, devArgs ...string) error {
	if err := w.startDev(ctx, devArgs...); err != nil {
		return err
	}
	return w.endpoint(ctx, "--driver", "process", "--max-lost-workers", "100", "--",
		w.cfg.Binary, "worker", endpointName, "--data", w.data(), "--log-level", "warn", "--", w.cfg.Handler, w.ledger())
}

// killWorker kills the worker that the autoscaler started under this id.
func (w *world) killWorker(id string) error {
	w.book.harm(killed, id)
	w.count("worker killed")
	return killProcess(w.book.process(id))
}

func scalerKill(ctx context.Context, w *world) error {
	if err := w.scaled(ctx); err != nil {
		return err
	}
	gate := w.gate("kill")
	if err := w.callers.submit(ctx, ledger.Input{Milliseconds: 120_000, Gate: gate}); err != nil {
		return err
	}
	if err := w.begun(ctx, 1); err != nil {
		return err
	}
	if err := w.killWorker(w.book.worker(1)); err != nil {
		return err
	}
	w.book.calmed()
	return w.open(gate)
}

func scalerRestart(ctx context.Context, w *world) error {
	if err := w.scaled(ctx, "--worker-shutdown-timeout", "1s"); err != nil {
		return err
	}
	gate := w.gate("restart")
	if err := w.callers.submit(ctx, ledger.Input{Milliseconds: 120_000, Gate: gate}); err != nil {
		return err
	}
	if err := w.begun(ctx, 1); err != nil {
		return err
	}
	w.book.harm(asked, w.book.worker(1))
	w.count("dev asked to stop")
	if err := w.dev.ask(); err != nil {
		return err
	}
	if err := w.dev.ended(ctx, readyTimeout); err != nil {
		return err
	}
	if err := w.open(gate); err != nil {
		return err
	}
	if err := w.startDev(ctx); err != nil {
		return err
	}
	w.book.calmed()
	return nil
}

func scalerStorm(ctx context.Context, w *world) error {
	if err := w.scaled(ctx); err != nil {
		return err
	}
	const kills, every, rate = 8, 4 * time.Second, 5
	work := func(n int) time.Duration { return time.Duration(100+n%10*100) * time.Millisecond }
	return w.underLoad(ctx, rate, kills*every, work, func() error {
		for range kills {
			wait(ctx, every)
			for _, id := range w.scalerWorkers() {
				if err := w.killWorker(id); err != nil {
					w.note("%v", err) // it ended by itself, having no job
				}
			}
		}
		return nil
	})
}

// scalerWorkers are the ids of workers that started a handler and live.
func (w *world) scalerWorkers() (ids []string) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	for id, pid := range w.book.byWorker {
		command, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "environ"))
		if err == nil && bytes.Contains(command, []byte("RUNPOD_POD_ID="+id)) {
			ids = append(ids, id)
		}
	}
	return ids
}
