package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"flightline/shared/job"
	"flightline/streams"
)

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
	return l.judged(l.end(ctx, job.Succeed, out, ""))
}

// Fail ends the run with an error text, of which job.MaxError bytes are kept.
// It returns what Complete does.
func (l *Lease) Fail(ctx context.Context, text string) (*job.Job, error) {
	return l.judged(l.end(ctx, job.Fail, nil, job.CutError(text)))
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
	if err := l.lookBack(ctx, by); err != nil {
		return nil, err
	}
	if plantDeleteFirst {
		l.ack(ctx)
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
		if l.msg != nil {
			n.keepFor(l.msg)
		}
		n.output, n.outRef, n.Error, n.emitted = output, ref, text, l.chunk > 0
	})
	switch {
	case errors.Is(err, ErrLost) && l.ended(by): // an earlier call wrote it and lost the answer
		if err := l.t.q.seen(ctx, l.t.at, l.seen); err != nil {
			return nil, err
		}
		l.rec = l.seen
	case err != nil:
		return nil, err
	}
	l.ack(ctx)
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
func (l *Lease) ack(ctx context.Context) {
	l.t.q.point(BeforeDelete)
	if !l.t.q.current(l.given, l.far) {
		l.t.q.dropMessage(ctx, l.t.at, l.Job.ID, l.Job.Attempt)
		return
	}
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
		n.Deadline, n.confirm = time.Time{}, 0
		n.output, n.Output = nil, nil
	})
	if err != nil {
		return err
	}
	if l.named(ctx) {
		_ = l.t.q.nc.Publish(l.rec.ack, []byte("-NAK")) // lost, it costs one lease of waiting
	}
	l.t.release(l)
	return nil
}

// giveBackDetached queues a message again for a job whose own one may be gone:
// the record first says that one will come, so that its taker goes on from it.
// A crash in between leaves a silent holder, which the due consumer ends.
func (l *Lease) giveBackDetached(ctx context.Context) error {
	if err := l.loadMessage(ctx); err != nil {
		return err
	}
	if err := l.write(ctx, job.Touch, func(n *record) { n.requeued, n.confirm = true, 0 }); err != nil {
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
	if err := l.t.q.enqueue(ctx, l.t.at, &again, expect); err != nil && !errors.Is(err, errConflict) {
		return err
	}
	l.t.release(l)
	return nil
}
