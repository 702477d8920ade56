package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/logs"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/streams"
)

const (
	// settleTimeout is how long, after the grace, Run waits for handlers to
	// return and for NATS to take their results.
	settleTimeout = 5 * time.Second
	// farewell bounds taking the worker's registration back.
	farewell = 2 * time.Second
	// startTimeout is how long JetStream may be away when a worker starts, and
	// startAttemptTimeout bounds one attempt.
	startTimeout        = 2 * time.Minute
	startAttemptTimeout = 10 * time.Second
)

// worker runs the jobs of one endpoint.
type worker struct {
	cfg      Config
	handler  Handler
	endpoint endpoint.Endpoint
	q        *queue.Queue
	presence *presence
	lines    *logs.Recorder  // nil if they are kept already
	ready    func()          // the first call is Config.OnReady
	stopping <-chan struct{} // closed once Run's ctx is done
	log      *slog.Logger
}

// Run runs jobs of an endpoint until ctx is done, then stops in order: it
// takes no more jobs, lets the running ones finish within the grace, ends the
// contexts of the rest (ErrDraining) and gives them back at once, which counts
// as no lost worker. A clean stop returns nil; a whole one takes at most the
// grace and seven seconds.
//
// A worker that is drained by request stops too: it takes no more jobs, within
// registry.BeatEvery and a second of the request, finishes those that it runs,
// however long they take, and returns nil. The end of ctx begins the grace then.
//
// It returns at once with ErrConfig, endpoint.ErrNotFound, or an error of
// bus.Connect if it cannot start; ErrStuck if it cannot stop; and
// endpoint.ErrNotFound, after an orderly stop, if the endpoint is deleted.
// An outage of JetStream is waited out: for two minutes at the start, then for as
// long as it takes.
func Run(ctx context.Context, cfg Config, h Handler) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("%w: no handler", ErrConfig)
	}
	nc, hangUp, err := cfg.connect()
	if err != nil {
		return err
	}
	defer hangUp()
	w, err := bindPatiently(ctx, nc, cfg, h)
	if err != nil {
		return fmt.Errorf("start worker of endpoint %q: %w", cfg.Endpoint, err)
	}
	return w.run(ctx)
}

// bindPatiently tries again while JetStream does not answer.
func bindPatiently(ctx context.Context, nc *nats.Conn, cfg Config, h Handler) (w *worker, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	notReady := func(err error) bool {
		if !isOutage(err) && !errors.Is(err, context.DeadlineExceeded) {
			return false
		}
		cfg.Log.WarnContext(ctx, "JetStream is not ready, trying again", "err", err)
		return true
	}
	err = retry.Do(ctx, outageBackoff, notReady, func() error {
		attempt, done := context.WithTimeout(ctx, startAttemptTimeout)
		defer done()
		w, err = bind(attempt, nc, cfg, h)
		return err
	})
	return w, err
}

func bind(ctx context.Context, nc *nats.Conn, cfg Config, h Handler) (*worker, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	reg, err := registry.NewForWorker(ctx, js, cfg.Log)
	if err != nil {
		return nil, err
	}
	e, err := reg.Endpoints.Get(ctx, cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	q, err := queue.New(ctx, nc, queue.Config{Log: cfg.Log, TrustAbsence: true, EndpointsBucket: streams.BucketWorkerEndpoints})
	if err != nil {
		return nil, err
	}
	own := podOf(ctx, cfg, e.ID, e.ReleaseVersion(), q.Now())
	w := &worker{
		cfg: cfg, handler: h, endpoint: e, q: q, ready: sync.OnceFunc(cfg.OnReady), log: cfg.Log,
		presence: newPresence(reg, e, own, cfg, q.Now),
	}
	if !cfg.LogsKept {
		w.lines = logs.NewRecorder(q.Bus(), logs.Source{Endpoint: e.ID, Partition: e.Partition, Worker: cfg.ID, Env: cfg.Environment}, cfg.Log)
	}
	return w, nil
}

// run keeps the bus and the registration alive until work is done: jobs are
// finished, and beat, after ctx.
func (w *worker) run(ctx context.Context) error {
	w.stopping = ctx.Done()
	ctx, stopTaking := context.WithCancelCause(ctx)
	defer stopTaking(nil)
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var g errgroup.Group
	parts := []func(context.Context) error{w.q.Run, w.presence.run}
	if w.lines != nil {
		parts = append(parts, w.lines.Run)
	}
	for _, part := range parts {
		g.Go(func() error {
			if err := part(alive); alive.Err() == nil {
				stopTaking(err)
				return err
			}
			return nil // its context ended
		})
	}
	err := w.work(ctx, alive)
	stop()
	return errors.Join(err, g.Wait())
}

// work takes and runs jobs until ctx is done, and then drains. It sleeps meanwhile when
// it is asked to. alive ends later than any job.
func (w *worker) work(ctx, alive context.Context) error {
	for {
		sleep, jobCame, err := w.takeJobs(ctx, alive)
		if err != nil || !sleep {
			return err
		}
		if jobCame { // it would wait until the autoscaler finds that no worker has it
			w.presence.enter(awake)
			continue
		}
		if awake, err := w.sleepUntilWoken(ctx); err != nil || !awake {
			return err
		}
	}
}

// takeJobs takes and runs jobs until ctx is done, or the worker is to drain or to sleep,
// and waits for the jobs that it has. It reports whether the worker is to sleep, and whether a
// job came meanwhile, which was given back.
func (w *worker) takeJobs(ctx, alive context.Context) (sleep, jobCame bool, err error) {
	w.presence.beat(alive)
	select {
	case <-w.presence.drained: // while it loaded
		return false, false, nil
	default:
	}
	consumer, err := w.q.Consume(alive, w.endpoint, w.cfg.ID, w.cfg.Concurrency)
	if err != nil {
		return false, false, err
	}
	defer consumer.Close()
	jobs, giveUp := context.WithCancelCause(alive)
	defer giveUp(nil)

	taking, enough := context.WithCancel(ctx)
	defer enough()
	var slots sync.WaitGroup
	for range w.cfg.Concurrency {
		slots.Go(func() { w.slot(taking, alive, jobs, consumer) })
	}
	w.ready()
	w.log.InfoContext(ctx, "worker ready", "concurrency", w.cfg.Concurrency)

	select {
	case <-ctx.Done():
	case <-w.presence.drained:
		w.log.InfoContext(ctx, "draining by request", "reason", w.presence.drainReason())
	case <-w.presence.sleep:
		sleep = true
		w.presence.enter(fallingAsleep)
	}
	enough()
	consumer.Close()
	err = w.drain(ctx, &slots, giveUp)
	return sleep, consumer.Wait(), err
}

// drain waits for the slots: until ctx ends, then for the grace, then, having
// ended the jobs' contexts, for as long as settling them may take.
func (w *worker) drain(ctx context.Context, slots *sync.WaitGroup, giveUp context.CancelCauseFunc) error {
	empty := make(chan struct{})
	go func() { // ends with the slots; if they are stuck, so is the process
		slots.Wait()
		close(empty)
	}()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	if within(empty, w.cfg.Grace) {
		return nil
	}
	giveUp(ErrDraining)
	if within(empty, settleTimeout) {
		return nil
	}
	return ErrStuck
}

func within(done <-chan struct{}, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// slot runs one job after the other, until taking ends: a job that was given back because the
// worker stops is not its own to pick up again. It asks with alive, not with taking: a
// pick-up that is cut off in the middle would look like a lost worker. The
// consumer's end is what stops it.
func (w *worker) slot(taking, alive, jobs context.Context, consumer *queue.Consumer) {
	for taking.Err() == nil {
		lease, err := consumer.Next(alive)
		if err != nil {
			return
		}
		if taking.Err() == nil {
			w.runJob(alive, jobs, lease)
			continue
		}
		w.settle(alive, lease, func() error { return lease.Release(alive) }) // picked up while the consumer closed
	}
}
