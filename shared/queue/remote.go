package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Remote speaks for workers that are reached through others, as those of RunPod are
// through the gateway. Such a worker holds its jobs by their records alone: these name
// the worker, and the subject that extends the lease. So any process that a worker speaks to
// takes the lease up with LeaseOf, before and after a restart.
type Remote struct {
	q          *Queue
	heartbeats heartbeats
}

// NotHeldError says how a job stands that a worker does not hold, or no longer.
// It unwraps to ErrLost.
type NotHeldError struct {
	// Status is "" if there is no such job.
	Status job.Status
	// Worker runs the job, or ran it last; "": no worker did.
	Worker string
}

func (e *NotHeldError) Error() string {
	if e.Status == "" {
		return "queue: the lease is lost: there is no such job"
	}
	return fmt.Sprintf("queue: the lease is lost: the job is %s, its last worker %q", e.Status, e.Worker)
}

// Unwrap makes errors.Is(err, ErrLost) hold.
func (e *NotHeldError) Unwrap() error { return ErrLost }

// Consume binds a consumer for a worker that other processes may speak for
// too: use NextIf, not Next. A run that it hands out must be heard of within
// confirm (Heartbeat, Emit, Progress or an outcome), else it is handed out again and
// no worker counts as lost; the third time one does. confirm is cut to the
// endpoint's lease. Close it.
func (rm *Remote) Consume(e endpoint.Endpoint, worker string, confirm time.Duration) *Consumer {
	c := rm.q.newConsumer(e, worker, 0)
	c.confirm = max(time.Millisecond, min(confirm, e.Lease))
	return c
}

// stillRunsDelay is for how long a job is left to others that its consumer's worker
// still runs.
const stillRunsDelay = time.Second

// NextIf is Next for a worker that may have left: stillWanted is asked when there is a
// job, before it is picked up, and false leaves the job to others and returns ErrClosed.
// alreadyRuns says that the worker still runs an earlier run of a job: it is left to others
// too, and NextIf goes on. inBatch says that the worker gets the job along with others: a
// job that may not have been received before is left in the queue, and NextIf returns
// ErrClosed. Once ctx ends, a job that is being picked up is still returned.
func (c *Consumer) NextIf(ctx context.Context, stillWanted func() bool, alreadyRuns func(job.ID) bool, inBatch bool) (*Lease, error) {
	s, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.leave(s)
	for {
		m, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		if !stillWanted() {
			m.release(c.e.Lease)
			return nil, ErrClosed
		}
		if alreadyRuns(streams.JobOf(m.Subject)) {
			m.postpone(c.e.Lease, stillRunsDelay)
			continue
		}
		c.q.Reach(AfterDelivery)
		m.inBatch = inBatch
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.claimTimeout())
		lease, err := c.claim(within, m)
		cancel()
		switch {
		case lease != nil:
			return c.hand(lease), nil
		case errors.Is(err, ErrClosed):
			return nil, err
		}
		_ = claimPayload(ctx, 0) // 0 has room
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// mayBeUnreceived reports whether a run of the attempt was handed out, and no worker is
// known to have received it; nil has no run. Perhaps no worker can read the job: then what
// it is handed out with is not received either.
func mayBeUnreceived(r *record.Record) bool {
	return r != nil && !r.Status.Terminal() && (r.AckTimeout > 0 || r.Undelivered > 0)
}

// Unreceived reports whether an earlier run of the attempt was handed out, and no worker is
// known to have received it.
func (l *Lease) Unreceived() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Undelivered > 0
}

// hand lets go of a lease; the next process that its worker asks takes it up. The
// queue message comes again after confirm, unless it is extended before.
func (c *Consumer) hand(l *Lease) *Lease {
	c.release(l)
	l.far = true
	if c.confirm < c.e.Lease {
		l.awaitSign()
	}
	return l
}

// awaitSign begins the time in which the worker must be heard of.
func (l *Lease) awaitSign() {
	if l.consumer.q.sameServer(l.given, false) {
		_ = l.consumer.q.nc.Publish(l.ackTo, fmt.Appendf(nil, `-NAK {"delay":%d}`, l.consumer.confirm.Nanoseconds()))
	}
}

// signParts is into how many parts Receiving divides the time to be heard of: in each
// it begins it once.
const signParts = 8

// Receiving says of a job that NextIf returned that its worker is still being sent it:
// the worker's time to be heard of begins again, unless it is over. Call it often; it
// mostly does nothing.
func (l *Lease) Receiving() {
	if since := bus.Elapsed(*l.extended.Load(), time.Now()); since > l.consumer.confirm/signParts && since < l.consumer.confirm {
		l.touch()
		l.awaitSign()
	}
}

// LeaseOf takes up the lease of the run in which worker holds the job, as its
// record says. It returns a *NotHeldError if the worker does not hold the job,
// and bus.ErrUnavailable.
func (rm *Remote) LeaseOf(ctx context.Context, e endpoint.Endpoint, id job.ID, worker string) (*Lease, error) {
	if !id.Valid() {
		return nil, &NotHeldError{}
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	r, err := rm.q.read.raw(ctx, at, id)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil, &NotHeldError{}
	case err != nil:
		return nil, err
	case r.Status != job.InProgress || r.Worker != worker || !rm.q.Now().Before(r.Expires):
		if err := rm.q.read.waitRecordDurable(ctx, at, r); err != nil { // else the worker forgets what may be lost
			return nil, err
		}
		return nil, &NotHeldError{r.Status, r.Worker}
	}
	c := &Consumer{q: rm.q, e: e, at: at, worker: worker, id: r.Holder}
	return &Lease{Job: r.Job, consumer: c, rec: r, ackTo: r.AckSubject, given: r.QueueServer, far: true, changed: make(chan struct{}, 1)}, nil
}

// Heartbeat extends the lease by which worker holds the job. It returns what LeaseOf
// does; the worker should stop a job for which that is a *NotHeldError.
func (rm *Remote) Heartbeat(ctx context.Context, e endpoint.Endpoint, id job.ID, worker string) error {
	l, err := rm.LeaseOf(ctx, e, id, worker)
	if err != nil {
		return err
	}
	if l.named(ctx) {
		_ = rm.q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	if err = l.extend(ctx); !errors.Is(err, ErrLost) {
		rm.heartbeats.add(&l.Job, e.Lease)
		return err
	}
	// It ended since we looked: say how.
	if _, err = rm.LeaseOf(ctx, e, id, worker); err == nil {
		err = &NotHeldError{}
	}
	return err
}

// extend writes that the holder lives.
func (l *Lease) extend(ctx context.Context) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lives(ctx)
}

// received says in the record, once, that the worker has the job.
func (l *Lease) received(ctx context.Context) error {
	if l.rec.AckTimeout == 0 {
		return nil
	}
	return l.lives(ctx)
}

// WorkerEnded gives back the job of a worker that is known to have ended: it waits again, at
// once, and counts as a job that lost its worker does after its lease (decideSilence). A run
// that the worker may not have received is no lost worker. With the last lost worker that the
// endpoint allows, the job is FAILED. It returns ErrLost or bus.ErrUnavailable.
func (l *Lease) WorkerEnded(ctx context.Context) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Detached {
		return nil // its silence is watched (due.go)
	}
	if err := l.loadMessage(ctx); err != nil {
		return err
	}
	if !mayBeHandedAgain(l.rec) && l.rec.Lost+1 >= l.consumer.e.MaxLost {
		if err := l.write(ctx, job.Fail, func(n *record.Record) { failLastLost(n, l.msg) }); err != nil {
			return err
		}
		l.ack(ctx)
		return nil
	}
	return l.giveBack(ctx, func(n *record.Record) {
		if mayBeHandedAgain(n) {
			n.Undelivered++
		} else {
			n.Lost++
		}
		givenBack(n)
	})
}

// lookBack fetches what the end of a run must know and this process may not:
// whether there are chunks, and the input, if a retry or a webhook may want it.
func (l *Lease) lookBack(ctx context.Context, by job.Trigger) (emitted bool, err error) {
	if !l.far {
		return l.window != nil && l.window.Emitted(), nil
	}
	emitted, err = l.writer().Emitted(ctx)
	if err != nil || by == job.Succeed && l.rec.Webhook == "" {
		return emitted, err
	}
	return emitted, l.loadMessage(ctx)
}

// loadMessage reads the queue message of a far lease. If that is gone, the
// record has all of it, or the job's ttl is over.
func (l *Lease) loadMessage(ctx context.Context) error {
	if l.msg != nil {
		return nil
	}
	msg, err := l.consumer.q.read.message(ctx, l.consumer.at, l.Job.ID)
	switch {
	case err == nil && msg.Attempt == l.Job.Attempt:
		l.msg = msg
	case err == nil || errors.Is(err, bus.ErrNoMessage):
		l.msg = l.rec
	default:
		return err
	}
	return nil
}

// StoppedWorker returns the worker whose run of the job was ended while its handler ran
// (cancelled, timed out, expired, or failed for a chunk that is not kept); "": no run was.
// It returns bus.ErrUnavailable.
func (rm *Remote) StoppedWorker(ctx context.Context, e endpoint.Endpoint, id job.ID) (worker string, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	r, err := rm.q.read.raw(ctx, record.LocationOf(e), id)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case r.Status == job.Cancelled, r.Status == job.TimedOut, r.Status == job.InProgress && !rm.q.Now().Before(r.Expires),
		r.Status == job.Failed && (strings.HasPrefix(r.Error, job.ErrTextChunkTooLarge) || strings.HasPrefix(r.Error, job.ErrTextChunkNotStored)):
		return r.Worker, nil
	}
	return "", nil
}

// A message that is delivered again does not prove that the holder of its job
// fell silent: one whose lease ended while the server stood still stays in the
// server's redelivery list, whatever the holder says afterwards
// (streams/facts_freeze_test.go). So the holder is asked before its run is
// taken over (docs/adr/0029).

const (
	// askTimeout is how long a holder has to answer.
	askTimeout = time.Second
	// askRetryInterval is when the question is repeated: core NATS may lose it.
	askRetryInterval = askTimeout / 2
)

// askBody makes a nudge a question.
const askBody = "ask"

func isAsk(m *nats.Msg) bool { return string(m.Data) == askBody }

// holderAnswer is what a process knows that was asked about the holder of a job.
type holderAnswer struct {
	// Attempt and Run name the run whose worker lives; 0: the sender knows none.
	Attempt int `json:"attempt,omitempty"`
	Run     int `json:"run,omitempty"`
	// SilentMs is how long ago the worker last said so.
	SilentMs int64 `json:"silentMs,omitempty"`
	// ServedMs is for how long JetStream has served the sender without a gap.
	ServedMs int64 `json:"servedMs,omitempty"`
}

// askHolder asks whether the worker of r's run was heard of within the lease, and those who
// watch JetStream for how long it has served. It returns as soon as the worker has
// answered, or after askTimeout.
func askHolder(ctx context.Context, c *bus.Client, at record.Location, r *record.Record, lease time.Duration) (alive bool, served time.Duration, err error) {
	answers := make(chan *nats.Msg, 64)
	sub, err := c.Conn().ChanSubscribe(streams.HolderAnswer(at.Endpoint, r.ID), answers)
	if err != nil {
		return false, 0, fmt.Errorf("ask the holder of job %s: %w: %w", r.ID, bus.ErrUnavailable, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	late, repeat := time.NewTimer(askTimeout), time.NewTicker(askRetryInterval)
	defer late.Stop()
	defer repeat.Stop()
	question := func() { _ = c.Conn().Publish(streams.Nudge(at.Endpoint, r.ID), []byte(askBody)) }
	question()
	for {
		select {
		case m := <-answers:
			var a holderAnswer
			if json.Unmarshal(m.Data, &a) != nil {
				continue
			}
			if a.Attempt == r.Attempt && a.Run == r.Run && a.SilentMs < lease.Milliseconds() { // the holder may know a longer one
				return true, served, nil
			}
			served = max(served, time.Duration(a.ServedMs)*time.Millisecond)
		case <-repeat.C:
			question()
		case <-late.C:
			return false, served, nil
		case <-ctx.Done():
			return false, served, fmt.Errorf("ask the holder of job %s: %w: %w", r.ID, bus.ErrUnavailable, ctx.Err())
		}
	}
}

func answerQuestion(nc *nats.Conn, endpointID string, id job.ID, a holderAnswer) {
	body, err := json.Marshal(a)
	if err == nil {
		_ = nc.Publish(streams.HolderAnswer(endpointID, id), body)
	}
}

// answerAvailability answers questions about holders with how long JetStream
// has served this process, until ctx ends: workers that end soon after their
// start cannot know it themselves.
func answerAvailability(ctx context.Context, c *bus.Client) error {
	sub, err := c.Conn().Subscribe(streams.AnyNudge, func(m *nats.Msg) {
		if isAsk(m) {
			answerQuestion(c.Conn(), streams.EndpointOf(m.Subject), streams.JobOf(m.Subject), holderAnswer{ServedMs: c.Availability().Age().Milliseconds()})
		}
	})
	if err != nil {
		return fmt.Errorf("listen for questions about holders: %w: %w", bus.ErrUnavailable, err)
	}
	<-ctx.Done()
	return sub.Unsubscribe()
}

// heartbeats are the runs of remote workers that this process has heard of within
// their lease.
type heartbeats struct {
	mu    sync.Mutex
	runs  map[job.ID]heartbeat
	swept time.Time
}

type heartbeat struct {
	attempt, run int
	at           time.Time
	lease        time.Duration
}

func (k *heartbeats) add(j *job.Job, lease time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.runs == nil {
		k.runs = make(map[job.ID]heartbeat)
	}
	if now.Sub(k.swept) > endpoint.MinLease {
		for id, r := range k.runs {
			if now.Sub(r.at) >= r.lease {
				delete(k.runs, id)
			}
		}
		k.swept = now
	}
	k.runs[j.ID] = heartbeat{j.Attempt, j.Run, now, lease}
}

// find returns the run of the job whose worker was heard of within its lease.
func (k *heartbeats) find(id job.ID) (r heartbeat, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok = k.runs[id]
	return r, ok && time.Since(r.at) < r.lease
}

// OnNudge calls each for every job of the endpoint whose record somebody else
// than its holder wrote while it was held, one after the other, until stop is
// called. It may miss some. Meanwhile it answers, for the jobs that Heartbeat was
// called for within their lease, that their worker lives. It returns
// bus.ErrUnavailable.
func (rm *Remote) OnNudge(e endpoint.Endpoint, each func(job.ID)) (stop func(), err error) {
	nudges, err := rm.q.nc.Subscribe(streams.Nudges(e.ID), func(m *nats.Msg) {
		if !isAsk(m) {
			each(streams.JobOf(m.Subject))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch the jobs of %s: %w: %w", e.ID, bus.ErrUnavailable, err)
	}
	// A subscription of its own: a question has an answer within askTimeout, however long each takes.
	questions, err := rm.q.nc.Subscribe(streams.Nudges(e.ID), func(m *nats.Msg) {
		id := streams.JobOf(m.Subject)
		if r, ok := rm.heartbeats.find(id); ok && isAsk(m) {
			answerQuestion(rm.q.nc, e.ID, id, holderAnswer{Attempt: r.attempt, Run: r.run, SilentMs: time.Since(r.at).Milliseconds()})
		}
	})
	if err != nil {
		_ = nudges.Unsubscribe()
		return nil, fmt.Errorf("answer for the workers of %s: %w: %w", e.ID, bus.ErrUnavailable, err)
	}
	return func() {
		_ = nudges.Unsubscribe()
		_ = questions.Unsubscribe()
	}, nil
}

// Nudge asks the process that holds the job, or speaks for its worker, to read its
// record.
func (rm *Remote) Nudge(e endpoint.Endpoint, id job.ID) { rm.q.nudge(record.LocationOf(e), id) }
