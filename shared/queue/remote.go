package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// A worker that is reached through others, as one of RunPod's is through the
// gateway, holds its jobs by their records alone: these name the worker, and
// the subject that extends the lease. So whichever process hears of such a
// worker takes the lease up with Held, before and after a restart.

// LostError says how a job stands that a worker does not hold, or no longer.
// It unwraps to ErrLost.
type LostError struct {
	// Status is "" if there is no such job.
	Status job.Status
	// Worker is who ran it last, or runs it, "" for nobody.
	Worker string
}

func (e *LostError) Error() string {
	if e.Status == "" {
		return "queue: the lease is lost: there is no such job"
	}
	return fmt.Sprintf("queue: the lease is lost: the job is %s, its last worker %q", e.Status, e.Worker)
}

// Unwrap makes errors.Is(err, ErrLost) hold.
func (e *LostError) Unwrap() error { return ErrLost }

// TakeRemote binds a taker for a worker that other processes may speak for
// too: use NextIf, not Next. A run that it hands out must be heard of within
// confirm (Keep, Emit, Progress or an outcome), else it is handed out again and
// no worker counts as lost; the third time one does. confirm is cut to the
// endpoint's lease. Close it.
func (q *Queue) TakeRemote(e endpoint.Endpoint, worker string, confirm time.Duration) *Taker {
	return &Taker{
		q: q, e: e, at: placeOf(e), worker: worker, id: nuid.Next(), confirm: max(time.Millisecond, min(confirm, e.Lease)),
		closed: make(chan struct{}), leases: map[job.ID]*Lease{}, claiming: map[job.ID]bool{},
	}
}

// NextIf is Next for a worker that may have left: wanted is asked when there
// is a job, before it is picked up, and false leaves the job to others and
// returns ErrClosed. Once ctx ends, a job that is being picked up is still
// returned.
func (t *Taker) NextIf(ctx context.Context, wanted func() bool) (*Lease, error) {
	s, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer t.leave(s)
	for {
		m, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		if !wanted() {
			m.release(t.e.Lease)
			return nil, ErrClosed
		}
		t.q.point(AfterDelivery)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.claimTimeout())
		lease, err := t.claim(within, m)
		cancel()
		if lease != nil {
			return t.hand(lease), nil
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// hand lets go of a lease that whoever hears of its worker will take up. The
// queue message comes again after confirm, unless it is extended before.
func (t *Taker) hand(l *Lease) *Lease {
	t.release(l)
	l.far, l.behind = true, true
	if t.confirm < t.e.Lease && t.q.current(l.given, false) {
		_ = t.q.nc.Publish(l.ackTo, fmt.Appendf(nil, `-NAK {"delay":%d}`, t.confirm.Nanoseconds()))
	}
	return l
}

// Held takes up the lease of the run in which worker holds the job, as its
// record tells. It returns a *LostError if the worker does not hold the job,
// and ErrUnavailable.
func (q *Queue) Held(ctx context.Context, e endpoint.Endpoint, id job.ID, worker string) (*Lease, error) {
	if !id.Valid() {
		return nil, &LostError{}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	r, err := q.newest(ctx, at, id)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil, &LostError{}
	case err != nil:
		return nil, err
	case r.Status != job.InProgress || r.Worker != worker || !q.Now().Before(r.Expires):
		return nil, &LostError{r.Status, r.Worker}
	}
	t := &Taker{q: q, e: e, at: at, worker: worker, id: r.holder}
	return &Lease{Job: r.Job, t: t, rec: r, ackTo: r.ack, given: r.queueServer, far: true, behind: true, changed: make(chan struct{}, 1)}, nil
}

// Keep extends the lease by which worker holds the job. It returns what Held
// does; the worker should stop a job for which that is a *LostError.
func (q *Queue) Keep(ctx context.Context, e endpoint.Endpoint, id job.ID, worker string) error {
	l, err := q.Held(ctx, e, id, worker)
	if err != nil {
		return err
	}
	if l.named(ctx) {
		_ = q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	if err = l.extend(ctx); !errors.Is(err, ErrLost) {
		q.kept.add(&l.Job, e.Lease)
		return err
	}
	// It ended since we looked: say how.
	if _, err = q.Held(ctx, e, id, worker); err == nil {
		err = &LostError{}
	}
	return err
}

// extend writes that the holder lives.
func (l *Lease) extend(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lives(ctx)
}

// received says in the record, once, that the worker has the job.
func (l *Lease) received(ctx context.Context) error {
	if l.rec.confirm == 0 {
		return nil
	}
	return l.lives(ctx)
}

// catchUp finds where the run's output ends, if other processes emit too.
func (l *Lease) catchUp(ctx context.Context) error {
	if !l.behind {
		return nil
	}
	last, err := l.t.q.leaderLast(ctx, streams.Output(l.t.at.partition), l.outputSubject())
	switch {
	case errors.Is(err, errNoMessage):
		l.chunk = 0
	case err != nil:
		return err
	default:
		l.chunk = last.seq
	}
	l.behind = false
	return nil
}

// lookBack fetches what the end of a run must know and this process may not:
// whether there are chunks, and the input, if a retry or a webhook may want it.
func (l *Lease) lookBack(ctx context.Context, by job.Trigger) error {
	if !l.far {
		return nil
	}
	if err := l.catchUp(ctx); err != nil || by == job.Succeed && l.rec.Webhook == "" {
		return err
	}
	return l.loadMessage(ctx)
}

// loadMessage reads the queue message of a far lease. One that is gone keeps
// nothing: then the record does, or the job's ttl is over.
func (l *Lease) loadMessage(ctx context.Context) error {
	if l.msg != nil {
		return nil
	}
	msg, err := l.t.q.readMessage(ctx, l.t.at, l.Job.ID)
	switch {
	case err == nil && msg.Attempt == l.Job.Attempt:
		l.msg = msg
	case err == nil || errors.Is(err, errNoMessage):
		l.msg = l.rec
	default:
		return err
	}
	return nil
}

// Halted returns the worker whose run of the job was ended by somebody else
// (cancelled, timed out or expired), "" if there is none. It returns
// ErrUnavailable.
func (q *Queue) Halted(ctx context.Context, e endpoint.Endpoint, id job.ID) (worker string, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := q.newest(ctx, placeOf(e), id)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case r.Status == job.Cancelled, r.Status == job.TimedOut, r.Status == job.InProgress && !q.Now().Before(r.Expires):
		return r.Worker, nil
	}
	return "", nil
}
