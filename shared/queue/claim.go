package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// slowClaim is how long the write of a pick-up may take before the clock of the
// run is started again: the handler has not begun.
const slowClaim = time.Second

// claimTimeout bounds a claim: a delivery is this consumer's for a lease.
func (c *Consumer) claimTimeout() time.Duration { return max(bus.CallTimeout, c.e.Lease/2) }

// claim turns a delivery into a lease, or into nothing if the job is not to be
// run: then it is dropped or left for later.
func (c *Consumer) claim(ctx context.Context, m *received) (*Lease, error) {
	msg, delivered, err := c.open(m)
	if err != nil {
		c.q.log.ErrorContext(ctx, "queue message cannot be read and is left in the queue", "endpoint", c.at.Endpoint, "job", streams.JobOf(m.Subject), "subject", m.Subject, "err", err)
		m.postpone(c.e.Lease, c.e.Lease)
		return nil, err
	}
	if c.at.OfEarlier(&msg.Job) { // submitted by a process that was suspended while the endpoint was deleted and made again
		c.q.log.WarnContext(ctx, "job of a deleted endpoint dropped", "endpoint", c.at.Endpoint, "job", msg.ID)
		c.q.dropDelivered(ctx, c.at, msg)
		return nil, nil //nolint:nilnil // nothing to run
	}
	first := c.beginClaim(msg.ID)
	if first {
		defer c.endClaim(msg.ID)
	}
	var r *record.Record
	if delivered > 1 {
		if r, err = c.readEarlier(ctx, m, msg); err != nil {
			return nil, err
		}
	}
	if m.doubtful(time.Now(), c.e.Lease) || delivered > 1 && r == nil { // its job may have ended, and its record be gone
		if waits, err := c.waits(ctx, msg); err != nil || !waits {
			return nil, err
		}
	}
	for {
		lease, err := c.act(ctx, m, msg, r, !first)
		if errors.Is(err, bus.ErrConflict) {
			if r, err = c.read(ctx, msg); err == nil {
				continue
			}
		}
		if err != nil {
			m.postpone(c.e.Lease, time.Second)
			return nil, err
		}
		return lease, nil
	}
}

// giveBackUnanswered gives a job back whose pick-up was stored while its answer was lost: others
// would count this worker as lost, which lives and does not run the job. It goes on until JetStream
// answers or ctx ends; nothing could be picked up meanwhile.
func (c *Consumer) giveBackUnanswered(ctx context.Context, m *received) {
	msg, _, err := c.open(m)
	if err != nil || !c.beginClaim(msg.ID) {
		return
	}
	defer c.endClaim(msg.ID)
	_, err = bus.UntilAnswered(ctx, func() (*record.Record, error) {
		within, cancel := bus.Bounded(ctx)
		defer cancel()
		for {
			r, err := c.resolveUnanswered(within, msg)
			if err != nil || r == nil || r.Status != job.InProgress || r.Holder != c.id || !c.q.Now().Before(r.Expires) {
				return nil, err
			}
			r, err = c.q.move(within, c.at, r, job.Release, givenBack)
			if !errors.Is(err, bus.ErrConflict) { // else a write of the pick-up was stored after it was read
				return r, err
			}
		}
	})
	if err != nil {
		c.q.log.DebugContext(ctx, "job that was picked up without an answer not given back", "endpoint", c.at.Endpoint, "job", msg.ID, "err", err)
	}
}

// resolveUnanswered returns the record of a job once it is decided whether an unanswered pick-up
// of it is stored, nil if nothing would end a run. In a cluster a leader without a majority
// answers reads, and what it did not answer may be stored later: there the job is picked up
// again, since one of two such writes is refused.
func (c *Consumer) resolveUnanswered(ctx context.Context, msg *record.Record) (*record.Record, error) {
	for {
		r, err := c.read(ctx, msg)
		if err != nil {
			return nil, err
		}
		if waits, err := c.waits(ctx, msg); err != nil || !waits {
			return nil, err
		}
		decided := decide(r, deliveryFacts{seq: msg.QueueSeq, expires: msg.Expires, holder: c.id, now: c.q.Now()})
		if !c.q.bus.Clustered() || decided != decideBegin && decided != decideResume {
			return r, nil
		}
		from, lost := msg, 0
		if r != nil {
			from, lost = r, r.Lost
		}
		if _, err := c.pickUp(ctx, msg, from, lost); err != nil && !errors.Is(err, bus.ErrConflict) {
			return nil, err
		}
	}
}

// waits reports whether the queue message of a delivery is still there. Else
// its job has ended, and the record may be gone too.
func (c *Consumer) waits(ctx context.Context, msg *record.Record) (bool, error) {
	there, err := c.q.bus.LeaderAt(ctx, streams.Jobs(c.at.Endpoint), msg.QueueSeq)
	if errors.Is(err, bus.ErrNoMessage) {
		return false, nil
	}
	return err == nil && streams.JobOf(there.Subject) == msg.ID, err
}

// beginClaim marks a job as being picked up by this consumer, until endClaim. It reports false
// if the consumer picks it up, or runs it, already.
func (c *Consumer) beginClaim(id job.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claiming[id] || c.leases[id] != nil {
		return false
	}
	c.claiming[id] = true
	return true
}

func (c *Consumer) endClaim(id job.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claiming, id)
}

func (c *Consumer) read(ctx context.Context, msg *record.Record) (*record.Record, error) {
	r, err := c.q.read.record(ctx, c.at, msg.ID, msg.Attempt)
	if errors.Is(err, bus.ErrNoMessage) {
		return nil, nil //nolint:nilnil // no record is a fact that decide knows
	}
	return r, err
}

// readEarlier is read for a message that was delivered before. It leaves the message in the
// queue if it returns an error: ErrClosed for a job that goes to its worker alone.
func (c *Consumer) readEarlier(ctx context.Context, m *received, msg *record.Record) (*record.Record, error) {
	r, err := c.read(ctx, msg)
	switch {
	case err != nil:
		m.postpone(c.e.Lease, time.Second)
	case m.inBatch && mayBeUnreceived(r):
		m.release(c.e.Lease)
		err = ErrClosed
	}
	return r, err
}

// open reads a delivered queue message.
func (c *Consumer) open(m *received) (msg *record.Record, delivered uint64, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("read delivery: %w", err)
	}
	id := streams.JobOf(m.Subject)
	msg, err = c.q.read.decode(c.at, id, &bus.Message{Header: m.Header, Data: m.Data})
	if err != nil {
		return nil, 0, err
	}
	msg.QueueSeq, msg.QueueServer, msg.AckSubject = meta.Sequence.Stream, m.server, m.Reply
	return msg, meta.NumDelivered, nil
}

// act does what decide says. bus.ErrConflict: the record is another by now.
func (c *Consumer) act(ctx context.Context, m *received, msg, r *record.Record, running bool) (*Lease, error) {
	d := deliveryFacts{
		seq: msg.QueueSeq, expires: msg.Expires, holder: c.id, running: running,
		now: c.q.Now(), available: c.q.bus.Availability().Age(), lease: c.e.Lease, maxLost: c.e.MaxLost,
	}
	decided := decide(r, d)
	if decided == decideAsk {
		if e, err := c.q.read.endpoint(ctx, c.e.ID); err == nil { // this consumer may be older than its settings
			d.lease, d.maxLost = e.Lease, e.MaxLost
		}
		alive, served, err := askHolder(ctx, c.q.bus, c.at, r, d.lease)
		if err != nil {
			return nil, err
		}
		d.now, d.asked, d.alive, d.available = c.q.Now(), true, alive, c.q.bus.Availability().AgeWith(served)
		decided = decide(r, d)
	}
	switch decided {
	case decideBegin:
		return c.begin(ctx, m, msg)
	case decideResume, decideAdopt, decideHandAgain:
		return c.pickUpAndLease(ctx, msg, r, r.Lost)
	case decideTakeOver:
		return c.pickUpAndLease(ctx, msg, r, r.Lost+1)
	case decideGiveUp:
		_, err := c.q.move(ctx, c.at, r, job.Fail, func(n *record.Record) { failLastLost(n, msg) })
		return nil, c.finished(ctx, msg, r, err)
	case decideTimeOut:
		_, err := c.q.move(ctx, c.at, r, job.TimeOut, func(n *record.Record) { keepInput(n, msg); n.Error = job.ErrTextTimedOut })
		return nil, c.finished(ctx, msg, r, err)
	case decideDrop:
		return nil, c.dropOver(ctx, msg, r)
	case decideDetach:
		return nil, c.q.detach(ctx, c.at, r, msg)
	case decideRequeue:
		return nil, c.q.finishRequeue(ctx, c.at, r)
	case decideHold, decideAsk:
		m.postpone(d.lease, redeliveryDelay(d))
	}
	return nil, nil //nolint:nilnil // nothing to run
}

func (c *Consumer) finished(ctx context.Context, msg, r *record.Record, err error) error {
	if err != nil {
		return err
	}
	c.q.dropDelivered(ctx, c.at, msg)
	c.q.nudge(c.at, r.ID)
	return nil
}

// dropOver removes a delivered queue message whose attempt is over, as its record r says.
// It waits for r: a power loss that took r, and not the removal, would lose the job.
func (c *Consumer) dropOver(ctx context.Context, msg, r *record.Record) error {
	if err := c.q.bus.WaitDurable(ctx, streams.Records(c.at.Partition), r.Server); err != nil {
		return err
	}
	c.q.dropDelivered(ctx, c.at, msg)
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
func (c *Consumer) begin(ctx context.Context, m *received, msg *record.Record) (*Lease, error) {
	l, err := c.pickUpAndLease(ctx, msg, msg, 0)
	if err != nil || m.fresh(time.Now(), c.e.Lease) {
		return l, err
	}
	waits, err := c.waits(ctx, msg)
	if err == nil && !waits {
		err = l.write(ctx, job.Touch, func(n *record.Record) { n.Expires = n.Changed })
	}
	if err != nil || !waits {
		c.release(l)
		return nil, err
	}
	return l, nil
}

// pickUpAndLease picks the attempt up, and returns the lease of its run: from is the record, or
// the queue message while no record exists.
func (c *Consumer) pickUpAndLease(ctx context.Context, msg, from *record.Record, lost int) (*Lease, error) {
	input := msg.Input
	if msg.InputRef != nil {
		var err error
		if input, err = c.q.payloads.load(ctx, msg.InputRef); err != nil {
			return nil, err
		}
	}
	r, err := c.pickUp(ctx, msg, from, lost)
	if err == nil && c.q.Now().Sub(r.Changed) > slowClaim {
		r, err = c.q.move(ctx, c.at, r, job.Touch, func(n *record.Record) {
			n.Started, n.Deadline = n.Changed, n.Changed.Add(n.ExecutionTimeout)
		})
	}
	if err != nil {
		return nil, err
	}
	c.q.Reach(AfterRecord)
	if from.Status == job.InProgress {
		c.q.nudge(c.at, r.ID)
	}
	l := &Lease{Job: r.Job, Input: input, S3Config: msg.S3Config, consumer: c, msg: msg, rec: r, ackTo: r.AckSubject, given: r.QueueServer, changed: make(chan struct{}, 1)}
	l.touch()
	c.hold(l)
	return l, nil
}

// pickUp writes that this consumer runs the attempt.
func (c *Consumer) pickUp(ctx context.Context, msg, from *record.Record, lost int) (*record.Record, error) {
	return c.q.move(ctx, c.at, from, job.Claim, func(n *record.Record) {
		now := n.Changed
		rememberStart(n, n.Started)
		n.Run++
		if from.Status == job.InProgress && n.AckTimeout > 0 {
			n.Undelivered++
		}
		n.AckTimeout = c.confirm
		n.Lost = lost
		n.Worker, n.Holder, n.AckSubject = c.worker, c.id, msg.AckSubject
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
}
