package system

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/e2e/chaos/ledger"
)

// freezeScenarios stop processes by SIGSTOP for a while, as a suspended
// machine, a paused container or a debugger does.
func freezeScenarios() []scenario {
	return []scenario{
		{
			name: "dev-freeze", does: "SIGSTOP of dev for 1.4 leases while all slots of two workers are busy",
			rule: rule{end: 3 * minLease}, act: devFreeze,
		},
		{
			name: "worker-freeze-idle", does: "SIGSTOP of an idle worker until jobs that were sent to it have run elsewhere and are forgotten",
			rule: rule{}, act: workerFreezeIdle,
		},
		{
			name: "worker-freeze-busy", does: "SIGSTOP of a busy worker for half a lease, and for 2 leases",
			rule: rule{end: 3 * minLease}, act: workerFreezeBusy,
		},
		{
			name: "gateway-freeze", does: "SIGSTOP of a gateway until a job that was sent to it runs elsewhere for a lease; the worker that polls it is killed",
			rule: rule{}, act: gatewayFreeze,
		},
	}
}

// frozen freezes dev or a server for so long.
func (w *world) frozen(ctx context.Context, p *process, d time.Duration) error {
	w.count(p.name + " frozen")
	if err := p.freeze(); err != nil {
		return err
	}
	wait(ctx, d)
	defer w.book.calmed()
	return p.thaw()
}

// simple starts dev and an endpoint without a driver.
func (w *world) simple(ctx context.Context, endpoint ...string) error {
	if err := w.startDev(ctx); err != nil {
		return err
	}
	return w.endpoint(ctx, endpoint...)
}

// gated submits jobs that run until the gate opens.
func (w *world) gated(ctx context.Context, jobs int, gate string) error {
	for range jobs {
		if err := w.callers.submit(ctx, ledger.Input{Milliseconds: 180_000, Gate: gate}); err != nil {
			return err
		}
	}
	return nil
}

// devFreeze freezes dev while two workers are full. After it, half of the jobs
// end: their workers take what the server offers, which must not be the other
// half.
func devFreeze(ctx context.Context, w *world) error {
	const jobs, afterwards = 2 * workerSlots, 12 * minLease / 10
	if err := w.simple(ctx); err != nil {
		return err
	}
	for i := range 2 {
		if _, err := w.worker(ctx, fmt.Sprintf("busy%d", i)); err != nil {
			return err
		}
	}
	half, rest := w.gate("half"), w.gate("rest")
	if err := errors.Join(w.gated(ctx, jobs/2, half), w.gated(ctx, jobs/2, rest)); err != nil {
		return err
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	wait(ctx, minLease/4)
	if err := w.frozen(ctx, w.dev, freezeTime); err != nil {
		return err
	}
	wait(ctx, afterwards) // since then the workers have had good service for a lease
	if err := w.open(half); err != nil {
		return err
	}
	wait(ctx, minLease/4)
	return w.open(rest)
}

// freezeTime is how long a server stands still.
const freezeTime = 14 * minLease / 10

func workerFreezeIdle(ctx context.Context, w *world) error {
	const jobs = workerSlots
	if err := w.simple(ctx, "--retention", "1s"); err != nil {
		return err
	}
	idle, err := w.worker(ctx, "idle")
	if err != nil {
		return err
	}
	wait(ctx, time.Second) // its pulls are open
	if _, err := w.harmWorker(frozen, idle); err != nil {
		return err
	}
	gate := w.gate("idle")
	if err := w.gated(ctx, jobs, gate); err != nil {
		return err
	}
	if _, err := w.worker(ctx, "other"); err != nil {
		return err
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	if err := w.open(gate); err != nil {
		return err
	}
	if err := until(ctx, calmTimeout, func() error { return w.hidden(ctx) }); err != nil {
		return err
	}
	wait(ctx, forgetTime)
	if err := idle.thaw(); err != nil {
		return err
	}
	wait(ctx, minLease/2) // what it was sent would run by now
	return nil
}

// forgetTime is longer than the server keeps the record of a job whose
// retention is over.
const forgetTime = 16 * time.Second

// hidden returns nil once all jobs have ended and the API knows none of them.
func (w *world) hidden(ctx context.Context) error {
	for _, id := range w.book.endedIDs() {
		if _, err := w.callers.look(ctx, id, 0, time.Second); !errors.Is(err, errGone) {
			return fmt.Errorf("job %s is not over: %w", id, err)
		}
	}
	if n := w.book.open(); n > 0 {
		return fmt.Errorf("%d jobs have not ended", n)
	}
	return nil
}

func workerFreezeBusy(ctx context.Context, w *world) error {
	const jobs = workerSlots
	if err := w.simple(ctx); err != nil {
		return err
	}
	busy, err := w.worker(ctx, "busy")
	if err != nil {
		return err
	}
	gate := w.gate("busy")
	if err := w.gated(ctx, jobs, gate); err != nil {
		return err
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	if _, err := w.worker(ctx, "other"); err != nil {
		return err
	}
	for _, d := range []time.Duration{minLease / 2, 2 * minLease} {
		over, err := w.harmWorker(frozen, busy)
		if err != nil {
			return err
		}
		wait(ctx, d)
		if err := busy.thaw(); err != nil {
			return err
		}
		over()
		w.book.calmed()
		wait(ctx, minLease/2)
	}
	return w.open(gate)
}

func gatewayFreeze(ctx context.Context, w *world) error {
	const jobs = 1
	if err := w.simple(ctx); err != nil {
		return err
	}
	gateway, polling, err := w.gateway(ctx)
	if err != nil {
		return err
	}
	w.count("gateway frozen")
	if err := gateway.freeze(); err != nil {
		return err
	}
	if _, err := w.harmWorker(killed, polling); err != nil {
		return err
	}
	gate := w.gate("gateway")
	if err := w.gated(ctx, jobs, gate); err != nil {
		return err
	}
	for i := range 2 {
		if _, err := w.worker(ctx, fmt.Sprintf("other%d", i)); err != nil {
			return err
		}
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	wait(ctx, minLease) // the runs elsewhere have been heard of for a lease
	if err := gateway.thaw(); err != nil {
		return err
	}
	wait(ctx, minLease/2) // a nak of the gateway has had its effect
	return w.open(gate)
}
