package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// slowClaim is how long the write of a pick-up may take before the clock of the
// run is started again: the handler has not begun.
const slowClaim = time.Second

// claimTimeout bounds a claim: a delivery is this consumer's for a lease.
func (t *Consumer) claimTimeout() time.Duration { return max(bus.CallTimeout, t.e.Lease/2) }

// claim turns a delivery into a lease, or into nothing if the job is not to be
// run: then it is dropped or left for later.
func (t *Consumer) claim(ctx context.Context, m *received) (*Lease, error) {
	msg, delivered, err := t.open(m)
	if err != nil {
		t.q.log.ErrorContext(ctx, "queue message cannot be read and is left in the queue", "endpoint", t.at.Endpoint, "job", streams.JobOf(m.Subject), "subject", m.Subject, "err", err)
		m.postpone(t.e.Lease, t.e.Lease)
		return nil, err
	}
	if t.at.OfEarlier(&msg.Job) { // submitted by a process that was suspended while the endpoint was deleted and made again
		t.q.log.WarnContext(ctx, "job of a deleted endpoint dropped", "endpoint", t.at.Endpoint, "job", msg.ID)
		t.q.dropDelivered(ctx, t.at, msg)
		return nil, nil //nolint:nilnil // nothing to run
	}
	alone := t.claimed(msg.ID)
	if alone {
		defer t.unclaimed(msg.ID)
	}
	var r *record.Record
	if delivered > 1 {
		if r, err = t.readEarlier(ctx, m, msg); err != nil {
			return nil, err
		}
	}
	if m.doubtful(time.Now(), t.e.Lease) || delivered > 1 && r == nil {
		if waits, err := t.waits(ctx, msg); err != nil || !waits {
			return nil, err
		}
	}
	for {
		lease, err := t.act(ctx, m, msg, r, !alone)
		if errors.Is(err, bus.ErrConflict) {
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
func (t *Consumer) waits(ctx context.Context, msg *record.Record) (bool, error) {
	there, err := t.q.bus.LeaderAt(ctx, streams.Jobs(t.at.Endpoint), msg.QueueSeq)
	if errors.Is(err, bus.ErrNoMessage) {
		return false, nil
	}
	return err == nil && streams.JobOf(there.Subject) == msg.ID, err
}

// claimed marks a job as being picked up by this consumer and reports whether
// nobody here does so, or runs it, already.
func (t *Consumer) claimed(id job.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claiming[id] || t.leases[id] != nil {
		return false
	}
	t.claiming[id] = true
	return true
}

func (t *Consumer) unclaimed(id job.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.claiming, id)
}

func (t *Consumer) read(ctx context.Context, msg *record.Record) (*record.Record, error) {
	r, err := t.q.read.record(ctx, t.at, msg.ID, msg.Attempt)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, nil //nolint:nilnil // no record is a fact that decide knows
	}
	return r, err
}

// readEarlier is read for a message that was delivered before. It leaves the message in the
// queue if it returns an error: ErrClosed for a job that goes to its worker alone.
func (t *Consumer) readEarlier(ctx context.Context, m *received, msg *record.Record) (*record.Record, error) {
	r, err := t.read(ctx, msg)
	switch {
	case err != nil:
		m.postpone(t.e.Lease, time.Second)
	case m.together && mayBeUnreceived(r):
		m.release(t.e.Lease)
		err = ErrClosed
	}
	return r, err
}

// open reads a delivered queue message.
func (t *Consumer) open(m *received) (msg *record.Record, delivered uint64, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("read delivery: %w", err)
	}
	id := streams.JobOf(m.Subject)
	msg, err = t.q.read.decode(t.at, id, &bus.Message{Header: m.Header, Data: m.Data})
	if err != nil {
		return nil, 0, err
	}
	msg.QueueSeq, msg.QueueServer, msg.AckSubject = meta.Sequence.Stream, m.server, m.Reply
	return msg, meta.NumDelivered, nil
}

// act does what decide says. bus.ErrConflict: the record is another by now.
func (t *Consumer) act(ctx context.Context, m *received, msg, r *record.Record, running bool) (*Lease, error) {
	d := deliveryFacts{
		seq: msg.QueueSeq, expires: msg.Expires, holder: t.id, running: running,
		now: t.q.Now(), available: t.q.bus.Availability().Age(), lease: t.e.Lease, maxLost: t.e.MaxLost,
	}
	decided := decide(r, d)
	if decided == decideAsk {
		if e, err := t.q.readEndpoint(ctx, t.e.ID); err == nil { // this consumer may be older than its settings
			d.lease, d.maxLost = e.Lease, e.MaxLost
		}
		alive, served, err := askHolder(ctx, t.q.bus, t.at, r, d.lease)
		if err != nil {
			return nil, err
		}
		d.now, d.asked, d.alive, d.available = t.q.Now(), true, alive, t.q.bus.Availability().AgeWith(served)
		decided = decide(r, d)
	}
	switch decided {
	case decideBegin:
		return t.begin(ctx, m, msg)
	case decideResume, decideAdopt, decideHandAgain:
		return t.run(ctx, msg, r, r.Lost)
	case decideTakeOver:
		return t.run(ctx, msg, r, r.Lost+1)
	case decideGiveUp:
		_, err := t.q.move(ctx, t.at, r, job.Fail, func(n *record.Record) {
			keepInput(n, msg)
			failLost(n, fmt.Sprintf("worker lost: this attempt was handed out %d times, and %d workers fell silent while they ran it", n.Run, n.Lost+1))
		})
		return nil, t.finished(ctx, msg, r, err)
	case decideTimeOut:
		_, err := t.q.move(ctx, t.at, r, job.TimeOut, func(n *record.Record) { keepInput(n, msg); n.Error = job.ErrTextTimedOut })
		return nil, t.finished(ctx, msg, r, err)
	case decideDrop:
		return nil, t.dropOver(ctx, msg, r)
	case decideDetach:
		return nil, t.q.detach(ctx, t.at, r, msg)
	case decideRequeue:
		return nil, t.q.finishRequeue(ctx, t.at, r)
	case decideHold, decideAsk:
		m.postpone(d.lease, redeliveryDelay(d))
	}
	return nil, nil //nolint:nilnil // nothing to run
}

func (t *Consumer) finished(ctx context.Context, msg, r *record.Record, err error) error {
	if err != nil {
		return err
	}
	t.q.dropDelivered(ctx, t.at, msg)
	t.q.notify(t.at, r.ID)
	return nil
}

// dropOver removes a delivered queue message whose attempt is over, as its record r says.
// It waits for r: a power loss that took r, and not the removal, would lose the job.
func (t *Consumer) dropOver(ctx context.Context, msg, r *record.Record) error {
	if err := t.q.bus.WaitDurable(ctx, streams.Records(t.at.Partition), r.Server); err != nil {
		return err
	}
	t.q.dropDelivered(ctx, t.at, msg)
	return nil
}

// rememberStart keeps the start of a run that another one follows, of the last
// maxStartTimes ones: a worker that keeps giving back must not grow the record.
func rememberStart(r *record.Record, start time.Time) {
	const maxStartTimes = 32
	if start.IsZero() {
		return
	}
	r.StartTimes = append(slices.Clone(r.StartTimes), start)
	r.StartTimes = r.StartTimes[max(0, len(r.StartTimes)-maxStartTimes):]
}

// keepInput puts into r what a retry needs: the attempt's input and s3Config.
func keepInput(r, msg *record.Record) {
	if r.Input == nil && r.InputRef == nil {
		r.Input, r.InputRef = msg.Input, msg.InputRef
	}
	if r.S3Config == nil {
		r.S3Config = msg.S3Config
	}
}

// begin picks up an attempt that has no record. A process that was suspended
// between the delivery and the write may have created the record of a job that
// ended and was forgotten: if its queue message is gone, the record expires.
func (t *Consumer) begin(ctx context.Context, m *received, msg *record.Record) (*Lease, error) {
	l, err := t.run(ctx, msg, msg, 0)
	if err != nil || m.fresh(time.Now(), t.e.Lease) {
		return l, err
	}
	waits, err := t.waits(ctx, msg)
	if err == nil && !waits {
		err = l.write(ctx, job.Touch, func(n *record.Record) { n.Expires = n.Changed })
	}
	if err != nil || !waits {
		t.release(l)
		return nil, err
	}
	return l, nil
}

// run picks the attempt up: from is the record, or the queue message if there
// is none yet.
func (t *Consumer) run(ctx context.Context, msg, from *record.Record, lost int) (*Lease, error) {
	input := msg.Input
	if msg.InputRef != nil {
		var err error
		if input, err = t.q.loadPayload(ctx, msg.InputRef); err != nil {
			return nil, err
		}
	}
	stale := from.Status == job.InProgress
	r, err := t.q.move(ctx, t.at, from, job.Claim, func(n *record.Record) {
		now := n.Changed
		rememberStart(n, n.Started)
		n.Run++
		if stale && n.AckTimeout > 0 {
			n.Undelivered++
		}
		n.AckTimeout = t.confirm
		n.Lost = lost
		n.Worker, n.Holder, n.AckSubject = t.worker, t.id, msg.AckSubject
		n.QueueSeq, n.QueueServer = msg.QueueSeq, msg.QueueServer
		n.QueueExpires = job.Later(n.QueueExpires, msg.QueueExpires)
		n.Started, n.Deadline = now, now.Add(n.ExecutionTimeout)
		n.Requeued, n.Detached = false, n.Detached && n.Expires.After(n.QueueExpires) // a longer ttl, of which the message does not know
		n.ExternalPayload = n.ExternalPayload || msg.InputRef != nil
		if !n.Detached {
			n.Input, n.InputRef, n.S3Config = nil, nil, nil
		}
		n.InlineOutput, n.Output = nil, nil
	})
	if err == nil && t.q.Now().Sub(r.Changed) > slowClaim {
		r, err = t.q.move(ctx, t.at, r, job.Touch, func(n *record.Record) {
			n.Started, n.Deadline = n.Changed, n.Changed.Add(n.ExecutionTimeout)
		})
	}
	if err != nil {
		return nil, err
	}
	t.q.Reach(AfterRecord)
	if stale {
		t.q.notify(t.at, r.ID)
	}
	l := &Lease{Job: r.Job, Input: input, S3Config: msg.S3Config, t: t, msg: msg, rec: r, ackTo: r.AckSubject, given: r.QueueServer, changed: make(chan struct{}, 1)}
	l.touch()
	t.hold(l)
	return l, nil
}

// notify asks the holder of a job, if it has one, to read its record.
// It may be lost; the next heartbeat looks anyway.
func (q *Queue) notify(at record.Location, id job.ID) {
	_ = q.nc.Publish(streams.Nudge(at.Endpoint, id), nil)
}

// A sequence, and an ack subject, which has one, name a queue message for as
// long as the server runs that gave them. A server that starts again after a
// power loss may have lost its last messages, and gives their sequences to
// others; the record of a lost one may be there all the same. So a record says
// which start of which server its sequence is of. While that serves, an ack is
// one message without an answer; afterwards the queue message is looked up by
// its job first.

// serverTag names the present start of the connected server in a record.
func serverTag(nc *nats.Conn) string {
	const length = 8
	id := nc.ConnectedServerId()
	return id[max(0, len(id)-length):]
}

// sameServer reports whether the sequences of the server start tag still name the
// same messages. For what another process was given (far), the nodes of a
// cluster count as one server: they lose what a majority has only if all of them
// lose power at once (docs/operating.md).
func (q *Queue) sameServer(tag string, far bool) bool {
	return tag != "" && (tag == serverTag(q.nc) || far && q.nc.ConnectedClusterName() != "")
}

// named reports whether the lease's ack subject names the queue message of its
// attempt.
func (l *Lease) named(ctx context.Context) bool {
	if l.t.q.sameServer(l.given, l.far) {
		return true
	}
	msg, err := l.t.q.read.message(ctx, l.t.at, l.Job.ID)
	return err == nil && msg.Attempt == l.Job.Attempt && msg.QueueSeq == l.rec.QueueSeq
}

// dropMessage removes the queue message of an attempt that is over, wherever it
// is in the queue: a longer ttl may have replaced it, and a restart moved it.
func (q *Queue) dropMessage(ctx context.Context, at record.Location, id job.ID, attempt int) {
	if msg, err := q.read.message(ctx, at, id); err == nil && msg.Attempt == attempt {
		q.deleteMessage(ctx, at, msg.QueueSeq)
	}
}

// dropDelivered removes a queue message that was delivered to this process.
func (q *Queue) dropDelivered(ctx context.Context, at record.Location, msg *record.Record) {
	if q.sameServer(msg.QueueServer, false) {
		q.deleteMessage(ctx, at, msg.QueueSeq)
	}
}

// deleteMessage removes a queue message that a record has decided, by its sequence,
// never by its subject, where a retry may wait. It may fail: the next delivery
// finds the record and removes the message.
func (q *Queue) deleteMessage(ctx context.Context, at record.Location, seq uint64) {
	q.Reach(BeforeDelete)
	if seq != 0 {
		q.bus.Delete(ctx, streams.Jobs(at.Endpoint), seq)
	}
}
