package queue

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
)

// Lease is a worker's hold on one run of a job: (job, attempt, run). It lasts
// while it is extended, and ends with an outcome, with GiveBack, or with
// ErrLost. It is safe for concurrent use.
type Lease struct {
	// Job is the job as it was picked up.
	Job job.Job
	// Input is the job's input, loaded.
	Input json.RawMessage
	// S3Config is the submission's, or nil. It is a secret.
	S3Config json.RawMessage

	t       *Taker
	msg     *record // the queue message; nil until a far lease needs it
	changed chan struct{}
	ackTo   string // the subject that extends and ends the lease
	given   string // the server start that gave it
	far     bool   // other processes have a part in the run (remote.go)
	// extended is when the holder last said that it lives, in this process's
	// time. Nil while it is not this process's affair.
	extended atomic.Pointer[time.Time]

	mu    sync.Mutex
	rec   *record // as this process last saw it
	seen  *record // the record of this run once it was found ended
	chunk uint64  // last sequence on the output subject of this run
	// behind: chunk must be looked up first, because other processes emit too.
	behind bool
	// What Emit could not finish: the chunk's hash, its messages that are not
	// known to be stored, and whether the first of them may be.
	emitting [sha256.Size]byte
	unsent   []*nats.Msg
	unsure   bool
}

// Changed receives a value when somebody else wrote the job's record. Call
// Extend then: it tells whether the lease is lost or its limits moved.
func (l *Lease) Changed() <-chan struct{} { return l.changed }

func (l *Lease) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Deadline is when the run times out, in server time. It moves with the server's
// clock where that is set: Until(Deadline()) is what the run has left.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.deadline()
}

// Expires is when the job's ttl ends it, in server time.
func (l *Lease) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Expires
}

// Extend is the heartbeat: call it every third of the endpoint's lease, and
// when Changed receives. It returns ErrLost once the job was cancelled, timed
// out, expired, or given to another worker: the handler should stop, its
// result is not wanted. ErrUnavailable means that nothing is known; go on and
// try again.
func (l *Lease) Extend(ctx context.Context) error {
	// Before the lock: another call may hold it for as long as JetStream does
	// not answer, and the heartbeat must not wait for that. It is lost while
	// NATS is away; so are the deliveries that it prevents.
	sent := l.t.q.current(l.given, l.far)
	if sent {
		_ = l.t.q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	l.touch()
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(ctx); err != nil {
		return err
	}
	if !sent && l.named(ctx) {
		_ = l.t.q.nc.Publish(l.ackTo, []byte("+WPI"))
	}
	return l.lives(ctx)
}

func (l *Lease) touch() {
	now := time.Now()
	l.extended.Store(&now)
}

// alive reports whether the holder has extended the lease within its time, by the
// monotonic clock: a wall clock that is set forward makes nobody silent.
func (l *Lease) alive() bool {
	last := l.extended.Load()
	return last != nil && time.Since(*last) < l.t.e.Lease
}

// lives says in the record that the holder lives, where that is not the
// business of the queue message alone.
func (l *Lease) lives(ctx context.Context) error {
	if !l.rec.detached && l.rec.confirm == 0 {
		return nil
	}
	return l.write(ctx, job.Touch, func(n *record) { n.confirm = 0 })
}

// refresh reads the record and checks that the run still holds it.
func (l *Lease) refresh(ctx context.Context) error {
	r, err := l.t.q.readRecord(ctx, l.t.at, l.Job.ID, l.Job.Attempt)
	switch {
	case errors.Is(err, errNoMessage):
		return l.lost()
	case err != nil:
		return err
	case r.Status.Terminal() && r.Run == l.Job.Run:
		l.seen = r
		return l.lost()
	case r.Status != job.InProgress || r.Run != l.Job.Run || !l.t.q.Now().Before(r.Expires):
		return l.lost()
	}
	l.rec = r
	return nil
}

func (l *Lease) lost() error {
	l.t.release(l)
	return ErrLost
}

// write moves the record while this run holds it. A conflict with a touch of
// somebody else is no loss: it reads and tries again.
func (l *Lease) write(ctx context.Context, by job.Trigger, change func(*record)) error {
	for {
		r, err := l.t.q.move(ctx, l.t.at, l.rec, by, change)
		if err == nil {
			l.rec = r
			return nil
		}
		if !errors.Is(err, errConflict) {
			return err
		}
		if err := l.refresh(ctx); err != nil {
			return err
		}
	}
}

// Progress keeps v, JSON of at most job.MaxProgress bytes, as the job's output
// until it ends. It returns ErrProgressTooLarge or ErrLost.
func (l *Lease) Progress(ctx context.Context, v json.RawMessage) error {
	if len(v) > job.MaxProgress {
		return ErrProgressTooLarge
	}
	v, err := compact(v)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.t.q.Now().Before(l.rec.Expires) {
		return l.lost()
	}
	return l.write(ctx, job.Touch, func(n *record) { n.output, n.Output, n.confirm = v, v, 0 })
}
