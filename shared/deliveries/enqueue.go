package deliveries

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/streams"
)

// ackGrace is how long a task may stay in the queue after the log ended it: longer
// than its ack takes.
const ackGrace = 2 * time.Second

// publishRetryDelay is the pause before a task that met another one is tried again.
const publishRetryDelay = 50 * time.Millisecond

// Enqueue queues the end of an attempt for its webhook, with the input and
// the output, or copies of its own if they lie beside the record: delivery may
// take longer than the retention. It does nothing for an attempt without a
// webhook, if it has not ended, and if it was enqueued and is not yet
// delivered, or if its record is damaged. It takes 9 s at most, and 2 s more for each
// 896 KiB that it copies, and 1.5 s for what it has to take back. It returns
// bus.ErrUnavailable.
func (s *Store) Enqueue(ctx context.Context, f queue.RecordChange) error {
	if f.Job.Webhook == "" || !f.Job.Status.Terminal() {
		return nil
	}
	at := record.Location{Endpoint: f.Job.Endpoint, Partition: f.Partition}
	r, err := s.q.ReadChanged(ctx, f)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return nil // only what was announced is forgotten, or the ttl ended it
	case errors.Is(err, record.ErrDamaged): // it must not hold up all others
		s.log.ErrorContext(ctx, "webhook not sent, the job's record is damaged", "endpoint", at.Endpoint, "job", f.Job.ID, "err", err)
		return nil
	case err != nil:
		return err
	}
	return s.copyAndEnqueue(ctx, at, r, "")
}

// copyTimeout is how much longer a call may take that moves the payloads beside a record.
func copyTimeout(refs []*record.PayloadRef) (more time.Duration) {
	for _, ref := range refs {
		more += record.ExtraTime(ref.Size)
	}
	return more
}

// Reenqueue queues the end of a job's latest attempt again, unless a task for it
// is still to be tried. It takes as long as Enqueue. It returns job.ErrNotFound if the
// job is no longer kept,
// has not ended, has no webhook, or is of an earlier endpoint of that id, and
// bus.ErrUnavailable.
func (s *Store) Reenqueue(ctx context.Context, e endpoint.Endpoint, id job.ID) error {
	at := record.LocationOf(e)
	r, err := s.q.Current(ctx, e, id)
	if err != nil {
		return err
	}
	if r.Webhook == "" || !r.Status.Terminal() || at.OfEarlier(&r.Job) {
		return job.ErrNotFound
	}
	return s.copyAndEnqueue(ctx, at, r, nuid.Next())
}

// copyAndEnqueue writes the message; replay is "" the first time. Copies of
// payloads that no message names are removed; after a crash they expire.
func (s *Store) copyAndEnqueue(ctx context.Context, at record.Location, r *record.Record, replay string) error {
	more := copyTimeout(r.PayloadRefs())
	ctx, cancel := bus.BoundedFor(ctx, more)
	defer cancel()
	var kept []string
	if more > 0 {
		if replay == "" { // a look is cheaper than a copy in vain
			_, err := s.readQueued(ctx, streams.WebhookSubject(at.Endpoint, r.ID, r.Attempt))
			if !errors.Is(err, bus.ErrNoMessage) {
				return err
			}
		}
		var err error
		if kept, err = s.copyPayloads(ctx, at, r, replay); err != nil {
			s.takeBack(ctx, kept)
			return fmt.Errorf("announce job %s: %w", r.ID, err)
		}
	}
	there, err := s.publishEnd(ctx, at, r, replay)
	if there || err != nil && !errors.Is(err, bus.ErrUnavailable) && ctx.Err() == nil {
		s.takeBack(ctx, kept)
	}
	if err != nil {
		return fmt.Errorf("announce job %s: %w", r.ID, err)
	}
	return nil
}

// publishEnd queues the end; there means that an equivalent task is queued
// already. After bus.ErrUnavailable, or an error of ctx, it may be queued.
func (s *Store) publishEnd(ctx context.Context, at record.Location, r *record.Record, replay string) (there bool, err error) {
	r.S3Config = nil // a secret of the worker's
	m, err := r.Message(streams.WebhookSubject(at.Endpoint, r.ID, r.Attempt), record.Decision)
	if err != nil {
		return false, err
	}
	if replay == "" {
		err = s.publishTask(ctx, m, time.Time{})
	} else {
		var other *bus.Message
		m.Header.Set(replayHeader, replay)
		other, err = s.republishTask(ctx, m, time.Now().Add(ackGrace))
		there = other != nil
	}
	if errors.Is(err, bus.ErrConflict) && !errors.Is(err, bus.ErrUnavailable) { // else the other one may be this one
		if _, err = s.readQueued(ctx, m.Subject); errors.Is(err, bus.ErrNoMessage) {
			err = nil // it was delivered meanwhile
		}
		return true, err
	}
	return there, err
}

// readQueued reads the task on a subject of the work queue, once it is on the disk: what it
// stands for, an event or a dead letter, is written or removed next. It returns
// bus.ErrNoMessage.
func (s *Store) readQueued(ctx context.Context, subject string) (*bus.Message, error) {
	there, err := s.bus.LeaderLast(ctx, streams.Webhooks, subject)
	if err != nil {
		return nil, err
	}
	return there, s.bus.WaitDurable(ctx, streams.Webhooks, there.Server)
}

// publishTask adds a task to the work queue. It returns bus.ErrConflict if a task
// of the same attempt is still there at the time until: a delivered task stays
// for a moment after the log has it.
func (s *Store) publishTask(ctx context.Context, m *nats.Msg, until time.Time) error {
	conflict := func(err error) bool { return errors.Is(err, bus.ErrConflict) && time.Now().Before(until) }
	return retry.Do(ctx, retry.Every(publishRetryDelay), conflict, func() error {
		_, err := s.bus.Publish(ctx, streams.Webhooks, m, 0)
		return err
	})
}

// copyPayloads replaces r's references by those of copies, and returns the
// subjects of the copies that it made or began. Only a replay fails if there is
// nothing to copy.
func (s *Store) copyPayloads(ctx context.Context, at record.Location, r *record.Record, replay string) (kept []string, err error) {
	until := s.bus.Now().Add(streams.WebhooksAge)
	for side, ref := range map[streams.Side]**record.PayloadRef{streams.In: &r.InputRef, streams.Out: &r.OutputRef} {
		if *ref == nil {
			continue
		}
		data, err := record.LoadPayload(ctx, s.bus, *ref)
		switch {
		case errors.Is(err, record.ErrPayloadGone) && side == streams.In && !r.Status.Retryable():
			*ref = nil // it was announced before, and the input dropped since
			continue
		case errors.Is(err, record.ErrPayloadGone) && replay == "":
			continue // a power loss took it; the delivery finds it gone
		case err != nil:
			return kept, err
		}
		subject := streams.KeptSubject(at.Partition, at.Endpoint, r.ID, r.Attempt, side, nuid.Next())
		kept = append(kept, subject)
		if *ref, err = record.StorePayload(ctx, s.bus, subject, data, until); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// takeBack removes unused copies, also after ctx has ended.
func (s *Store) takeBack(ctx context.Context, subjects []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bus.RequestTimeout)
	defer cancel()
	s.dropCopies(ctx, subjects)
}

// dropCopies removes copies of payloads. What it cannot remove expires.
func (s *Store) dropCopies(ctx context.Context, subjects []string) {
	for _, subject := range subjects {
		p, err := streams.PayloadPartition(subject)
		if err == nil {
			err = s.bus.Purge(ctx, streams.Payloads(p), subject)
		}
		if err != nil {
			s.log.DebugContext(ctx, "copy not removed, it expires", "subject", subject, "err", err)
		}
	}
}
