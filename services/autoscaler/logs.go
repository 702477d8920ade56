package autoscaler

import (
	"context"
	"maps"
	"sync"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/logs"
	"flightline/shared/pod"
	"flightline/shared/retry"
)

// lastLinesTimeout bounds reading what a pod that ended printed, before it is forgotten.
const lastLinesTimeout = 5 * time.Second

// followRetryDelay is the pause after a driver, or the bus, did not say what a pod prints: an
// engine may never.
const followRetryDelay = 10 * time.Second

// logKeeper keeps what an agent's workers print.
type logKeeper struct {
	ctx    context.Context //nolint:containedctx // of recorders, which outlive the requests that start them
	cancel context.CancelFunc
	work   sync.WaitGroup

	following sync.Map // by pod: a channel that is closed when its following ends
}

func newLogKeeper() *logKeeper {
	ctx, cancel := context.WithCancel(context.Background())
	return &logKeeper{ctx: ctx, cancel: cancel}
}

// close waits until what pods printed is written, or a few seconds.
func (k *logKeeper) close() {
	k.cancel()
	k.work.Wait()
}

// source is whose lines the lines of an endpoint's pod are.
func (a *agent) source(ctx context.Context, p pod.Pod, env map[string]string) (logs.Source, error) {
	e, err := a.registry.Endpoints.Get(ctx, p.Endpoint)
	return logs.Source{Endpoint: e.ID, Partition: e.Partition, Worker: p.ID, Env: env}, err
}

// record starts a recorder of what a pod prints, and returns what ends it.
func (a *agent) record(s logs.Source) (out, errs *logs.Stream, end func()) {
	r := logs.NewRecorder(a.queue.Bus(), s, a.log)
	a.logs.work.Go(func() { _ = r.Run(a.logs.ctx) }) // it returns nil
	out, errs = r.Stream(logs.Stdout), r.Stream(logs.Stderr)
	return out, errs, func() {
		_, _ = out.Close(), errs.Close() // neither fails
		r.End()
	}
}

// output is where a worker's pod prints to, nil for nowhere.
func (a *agent) output(ctx context.Context, p pod.Pod, env map[string]string) *driver.Output {
	if _, follows := a.driver.(driver.Follower); follows || p.Endpoint == "" {
		return nil
	}
	s, err := a.source(ctx, p, env)
	if err != nil {
		a.warn(ctx, "what a pod prints is not kept", p.ID, err)
		return nil
	}
	out, errs, end := a.record(s)
	return &driver.Output{Stdout: out, Stderr: errs, End: end}
}

// follow keeps what a pod of a driver.Follower prints, behind what is kept of it, unless
// that is being done. It does not wait; ended is closed when no more comes.
func (a *agent) follow(ctx context.Context, p pod.Pod) (ended <-chan struct{}) {
	f, ok := a.driver.(driver.Follower)
	if !ok || p.Endpoint == "" {
		return nil
	}
	done := make(chan struct{})
	if under, found := a.logs.following.LoadOrStore(p.ID, done); found {
		return under.(chan struct{}) // nothing else is stored
	}
	a.logs.work.Go(func() {
		defer close(done)
		defer a.logs.following.Delete(p.ID)
		if err := a.copyLines(context.WithoutCancel(ctx), f, p); err != nil {
			a.warn(ctx, "what a pod prints is not kept now, trying again", p.ID, err)
			_ = retry.Sleep(a.logs.ctx, followRetryDelay) //nolint:contextcheck // the agent ends it
		}
	})
	return done
}

// copyLines follows a pod until it has ended, its driver is away, or the agent stops.
func (a *agent) copyLines(ctx context.Context, f driver.Follower, p pod.Pod) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.logs.ctx, cancel)() //nolint:contextcheck // the agent ends it too
	s, err := a.source(ctx, p, maps.Clone(p.Spec.Env))
	if err != nil {
		return err
	}
	since, err := logs.LastTime(ctx, a.queue.Bus(), s)
	if err != nil {
		return err
	}
	out, errs, end := a.record(s)
	defer end()
	return f.Follow(ctx, p.ID, since, func(piece driver.Printed) {
		to := out
		if piece.Stderr {
			to = errs
		}
		to.At(piece.At)
		_, _ = to.Write(piece.Text)
	})
}

// removeInstance removes what is left of a pod that ended, once what it printed is kept.
func (a *agent) removeInstance(ctx context.Context, p pod.Pod) error {
	if ended := a.follow(ctx, p); ended != nil {
		late := time.NewTimer(lastLinesTimeout)
		defer late.Stop()
		select {
		case <-ended:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	return a.driver.Forget(ctx, p.ID)
}
