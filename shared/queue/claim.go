package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

// slowPickup is how long the write of a pick-up may take before the clock of the
// run is started again: the handler has not begun.
const slowPickup = time.Second

// claimTimeout bounds a claim: a delivery is this taker's for a lease.
func (t *Taker) claimTimeout() time.Duration { return max(answerWithin, t.e.Lease/2) }

// claim turns a delivery into a lease, or into nothing if the job is not to be
// run: then it is dropped or left for later.
func (t *Taker) claim(ctx context.Context, m *received) (*Lease, error) {
	msg, delivered, err := t.open(m.Msg)
	if err != nil {
		t.q.log.ErrorContext(ctx, "queue message cannot be read and is left in the queue", "endpoint", t.at.endpoint, "job", streams.JobOf(m.Subject), "subject", m.Subject, "error", err)
		m.postpone(t.e.Lease, t.e.Lease)
		return nil, err
	}
	alone := t.claimed(msg.ID)
	if alone {
		defer t.unclaimed(msg.ID)
	}
	var r *record
	if delivered > 1 {
		if r, err = t.read(ctx, msg); err != nil {
			m.postpone(t.e.Lease, time.Second)
			return nil, err
		}
	}
	if !m.fresh(time.Now(), t.e.Lease) || delivered > 1 && r == nil {
		if waits, err := t.waits(ctx, msg); err != nil || !waits {
			return nil, err
		}
	}
	for {
		lease, err := t.act(ctx, m, msg, r, !alone)
		if errors.Is(err, errConflict) {
			if r, err = t.read(ctx, msg); err == nil {
				continue
			}
		}
		if err != nil {
			m.postpone(t.e.Lease, time.Second)
			return nil, err
		}
		return lease, nil
	}
}

// waits reports whether the queue message of a delivery is still there. One that
// is not belongs to a job that ended, and whose record may be gone too.
func (t *Taker) waits(ctx context.Context, msg *record) (bool, error) {
	there, err := t.q.leaderSeq(ctx, streams.Jobs(t.at.endpoint), msg.queueSeq)
	if errors.Is(err, errNoMessage) {
		return false, nil
	}
	return err == nil && streams.JobOf(there.subject) == msg.ID, err
}

// claimed marks a job as being picked up by this taker and reports whether
// nobody here does so, or runs it, already.
func (t *Taker) claimed(id job.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claiming[id] || t.leases[id] != nil {
		return false
	}
	t.claiming[id] = true
	return true
}

func (t *Taker) unclaimed(id job.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.claiming, id)
}

func (t *Taker) read(ctx context.Context, msg *record) (*record, error) {
	r, err := t.q.readRecord(ctx, t.at, msg.ID, msg.Attempt)
	if errors.Is(err, errNoMessage) {
		return nil, nil //nolint:nilnil // no record is a fact that judge knows
	}
	return r, err
}

// open reads a delivered queue message.
func (t *Taker) open(m *nats.Msg) (msg *record, delivered uint64, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("read delivery: %w", err)
	}
	id := streams.JobOf(m.Subject)
	msg, err = t.q.decode(t.at, id, &stored{header: m.Header, data: m.Data})
	if err != nil {
		return nil, 0, err
	}
	msg.queueSeq, msg.queueServer, msg.ack = meta.Sequence.Stream, t.q.serverTag(), m.Reply
	return msg, meta.NumDelivered, nil
}

// act does what judge says. errConflict: the record is another by now.
func (t *Taker) act(ctx context.Context, m *received, msg, r *record, running bool) (*Lease, error) {
	d := delivery{
		seq: msg.queueSeq, expires: msg.Expires, holder: t.id, running: running,
		now: t.q.Now(), service: t.q.service.age(), lease: t.e.Lease, maxLost: t.e.MaxLost,
	}
	decided := judge(r, d)
	if decided == ask {
		alive, served, err := t.q.askHolder(ctx, t.at, r)
		if err != nil {
			return nil, err
		}
		d.now, d.asked, d.alive, d.service = t.q.Now(), true, alive, max(t.q.service.age(), served)
		decided = judge(r, d)
	}
	switch decided {
	case begin:
		return t.begin(ctx, m, msg)
	case resume, adopt, handAgain:
		return t.run(ctx, msg, r, r.Lost)
	case takeOver:
		return t.run(ctx, msg, r, r.Lost+1)
	case giveUp:
		_, err := t.q.move(ctx, t.at, r, job.Fail, func(n *record) {
			n.Lost++
			n.keepFor(msg)
			n.Error = fmt.Sprintf("worker lost: %d workers fell silent while they ran this attempt", n.Lost)
		})
		return nil, t.finished(ctx, msg, r, err)
	case tooLate:
		_, err := t.q.move(ctx, t.at, r, job.TimeOut, func(n *record) { n.keepFor(msg); n.Error = job.ErrTextTimedOut })
		return nil, t.finished(ctx, msg, r, err)
	case drop:
		t.q.dropDelivered(ctx, t.at, msg)
		return nil, nil //nolint:nilnil // nothing to run
	case stray:
		return nil, t.q.detach(ctx, t.at, r, msg)
	case requeue:
		return nil, t.q.finishRequeue(ctx, t.at, r)
	case hold, ask:
		m.postpone(t.e.Lease, patience(d))
	}
	return nil, nil //nolint:nilnil // nothing to run
}

func (t *Taker) finished(ctx context.Context, msg, r *record, err error) error {
	if err != nil {
		return err
	}
	t.q.dropDelivered(ctx, t.at, msg)
	t.q.nudge(t.at, r.ID)
	return nil
}

// remember keeps the start of a run that another one follows, of the last
// begunMost ones: a worker that keeps giving back must not grow the record.
func (r *record) remember(start time.Time) {
	const begunMost = 32
	if start.IsZero() {
		return
	}
	r.begun = append(slices.Clone(r.begun), start)
	r.begun = r.begun[max(0, len(r.begun)-begunMost):]
}

// keepFor puts into r what a retry needs: the attempt's input and s3Config.
func (r *record) keepFor(msg *record) {
	if r.input == nil && r.inRef == nil {
		r.input, r.inRef = msg.input, msg.inRef
	}
	if r.s3 == nil {
		r.s3 = msg.s3
	}
}

// begin picks up an attempt that has no record. A process that was suspended
// between the delivery and the write may have created the record of a job that
// ended and was forgotten: if its queue message is gone, the record expires.
func (t *Taker) begin(ctx context.Context, m *received, msg *record) (*Lease, error) {
	l, err := t.run(ctx, msg, msg, 0)
	if err != nil || m.fresh(time.Now(), t.e.Lease) {
		return l, err
	}
	waits, err := t.waits(ctx, msg)
	if err == nil && !waits {
		err = l.write(ctx, job.Touch, func(n *record) { n.Expires = n.changed })
	}
	if err != nil || !waits {
		t.release(l)
		return nil, err
	}
	return l, nil
}

// run picks the attempt up: from is the record, or the queue message if there
// is none yet.
func (t *Taker) run(ctx context.Context, msg, from *record, lost int) (*Lease, error) {
	input := msg.input
	if msg.inRef != nil {
		var err error
		if input, err = t.q.loadPayload(ctx, t.at, msg.inRef); err != nil {
			return nil, err
		}
	}
	stale := from.Status == job.InProgress
	r, err := t.q.move(ctx, t.at, from, job.PickUp, func(n *record) {
		now := n.changed
		n.remember(n.Started)
		n.Run++
		if stale && n.confirm > 0 {
			n.astray++
		}
		n.confirm = t.confirm
		n.Lost = lost
		n.Worker, n.holder, n.ack = t.worker, t.id, msg.ack
		n.queueSeq, n.queueServer = msg.queueSeq, msg.queueServer
		n.queueExpires = later(n.queueExpires, msg.queueExpires)
		n.Started, n.Deadline = now, now.Add(n.ExecutionTimeout)
		n.requeued, n.detached = false, false
		n.beside = n.beside || msg.inRef != nil
		n.input, n.inRef, n.s3, n.output, n.Output = nil, nil, nil, nil, nil
	})
	if err == nil && t.q.Now().Sub(r.changed) > slowPickup {
		r, err = t.q.move(ctx, t.at, r, job.Touch, func(n *record) {
			n.Started, n.Deadline = n.changed, n.changed.Add(n.ExecutionTimeout)
		})
	}
	if err != nil {
		return nil, err
	}
	t.q.point(AfterRecord)
	if stale {
		t.q.nudge(t.at, r.ID)
	}
	l := &Lease{Job: r.Job, Input: input, S3Config: msg.s3, t: t, msg: msg, rec: r, ackTo: r.ack, given: r.queueServer, changed: make(chan struct{}, 1)}
	l.touch()
	t.hold(l)
	return l, nil
}

// nudge tells the holder of a job, if there is one, to look at its record.
// It may be lost; the next heartbeat looks anyway.
func (q *Queue) nudge(at place, id job.ID) {
	_ = q.nc.Publish(streams.Nudge(at.endpoint, id), nil)
}
