package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"flightline/shared/job"
	"flightline/streams"
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
	msg     *record // the queue message
	changed chan struct{}

	mu    sync.Mutex
	rec   *record // as this process last saw it
	seen  *record // the record of this run once it was found ended
	chunk uint64  // last sequence on the output subject of this run
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

// Deadline is when the run times out, in server time.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Deadline
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
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.t.q.nc.Publish(l.rec.ack, []byte("+WPI")) // lost while NATS is away; so are the deliveries that it prevents
	if err := l.refresh(ctx); err != nil {
		return err
	}
	if !l.rec.detached {
		return nil
	}
	return l.write(ctx, job.Touch, nil) // the record itself says that the holder lives
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
	return l.write(ctx, job.Touch, func(n *record) { n.output, n.Output = v, v })
}

// Complete ends the run with its output, JSON or nothing; more than
// job.MaxOutput ends it as FAILED. Past the deadline it is TIMED_OUT. It
// returns the job as it stands, ErrLost if the run no longer holds it, or
// ErrUnavailable, after which it may be repeated.
func (l *Lease) Complete(ctx context.Context, output json.RawMessage) (*job.Job, error) {
	out, err := compact(output)
	switch {
	case err != nil:
		return l.Fail(ctx, err.Error())
	case len(out) > job.MaxOutput:
		return l.Fail(ctx, fmt.Sprintf("%s: the output has %d bytes, at most %d are kept", job.ErrTextOutputTooLarge, len(out), job.MaxOutput))
	}
	return l.end(ctx, job.Succeed, out, "")
}

// Fail ends the run with an error text, of which job.MaxError bytes are kept.
// It returns what Complete does.
func (l *Lease) Fail(ctx context.Context, text string) (*job.Job, error) {
	return l.end(ctx, job.Fail, nil, job.CutError(text))
}

// TimeOut ends a run that is past its deadline. It returns what Complete does.
func (l *Lease) TimeOut(ctx context.Context) (*job.Job, error) {
	return l.end(ctx, job.TimeOut, nil, job.ErrTextTimedOut)
}

// end writes the outcome and only then lets the queue message go. A crash in
// between brings the message back, and whoever meets it finds the record.
func (l *Lease) end(ctx context.Context, by job.Trigger, output []byte, text string) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Status.Terminal() { // an earlier call whose answer was lost to the caller
		j := l.rec.Job
		return &j, nil
	}
	now := l.t.q.Now()
	if !now.Before(l.rec.Expires) {
		return nil, l.lost()
	}
	if l.rec.Overdue(now) {
		by, output, text = job.TimeOut, nil, job.ErrTextTimedOut
	}
	if plantDeleteFirst {
		l.ack()
	}
	var ref *payloadRef
	if len(output) > inlineMost {
		var err error
		if ref, err = l.t.q.storePayload(ctx, l.t.at, l.rec, streams.Out, output, l.rec.physical()); err != nil {
			return nil, err
		}
		output = nil
	}
	err := l.write(ctx, by, func(n *record) {
		n.keepFor(l.msg)
		n.output, n.outRef, n.Error = output, ref, text
	})
	switch {
	case errors.Is(err, ErrLost) && l.ended(by):
		l.rec = l.seen // an earlier call wrote it and lost the answer
	case err != nil:
		return nil, err
	}
	l.ack()
	l.t.release(l)
	j := l.rec.Job
	return &j, nil
}

// ended reports whether the record that ended this run is what the holder
// itself wrote: nobody else completes a run, and whoever else fails it counts
// its worker as lost.
func (l *Lease) ended(by job.Trigger) bool {
	if l.seen == nil {
		return false
	}
	want, err := job.InProgress.Next(by)
	return err == nil && l.seen.Status == want && l.seen.Lost == l.Job.Lost
}

// ack lets the queue message go. It proves nothing and may be lost.
func (l *Lease) ack() {
	l.t.q.point(BeforeDelete)
	_ = l.t.q.nc.Publish(l.rec.ack, []byte("+ACK"))
}

// GiveBack ends the lease without an outcome: the job waits again, at once and
// without a lost worker. It returns ErrLost or ErrUnavailable.
func (l *Lease) GiveBack(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.detached {
		return l.giveBackDetached(ctx)
	}
	err := l.write(ctx, job.GiveBack, func(n *record) {
		n.Deadline = time.Time{}
		n.output, n.Output = nil, nil
	})
	if err != nil {
		return err
	}
	_ = l.t.q.nc.Publish(l.rec.ack, []byte("-NAK")) // lost, it costs one lease of waiting
	l.t.release(l)
	return nil
}

// giveBackDetached queues a message again for a job whose own one may be gone:
// the record first says that one will come, so that its taker goes on from it.
// A crash in between leaves a silent holder, which the due consumer ends.
func (l *Lease) giveBackDetached(ctx context.Context) error {
	if err := l.write(ctx, job.Touch, func(n *record) { n.requeued = true }); err != nil {
		return err
	}
	var expect uint64
	waiting, err := l.t.q.readMessage(ctx, l.t.at, l.Job.ID)
	switch {
	case err == nil:
		expect = waiting.queueSeq
	case !errors.Is(err, errNoMessage):
		return err
	}
	again := *l.msg
	again.Expires, again.input, again.inRef = l.rec.Expires, l.rec.input, l.rec.inRef
	if _, err := l.t.q.enqueue(ctx, l.t.at, &again, expect); err != nil && !errors.Is(err, errConflict) {
		return err
	}
	l.t.release(l)
	return nil
}
