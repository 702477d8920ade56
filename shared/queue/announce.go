package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// leaving is for how long a completion that is done may still be in the queue:
// longer than its removal takes, with the service and the server at work.
const leaving = 2 * time.Second

// partWithin is the time that the copy of one part of a payload may take, on
// top of answerWithin for all else.
const partWithin = 2 * time.Second

// Announce queues the end of an attempt for its webhook, with the input and
// the output, or copies of its own if they lie beside the record: delivery may
// take longer than the retention. It does nothing for an attempt without a
// webhook, one that has not ended, and one that was announced and not yet
// delivered. It takes 4.5 s at most, and 2 s more for each 896 KiB that it
// copies, and 1.5 s for what it has to take back. It returns ErrUnavailable.
func (q *Queue) Announce(ctx context.Context, f Fact) error {
	if f.Job.Webhook == "" || !f.Job.Status.Terminal() {
		return nil
	}
	began := time.Now()
	within, cancel := bounded(ctx)
	defer cancel()
	at := place{f.Job.Endpoint, f.Partition}
	r, err := q.readRecord(within, at, f.Job.ID, f.Job.Attempt)
	if errors.Is(err, errNoMessage) {
		return nil // only what was announced is forgotten, or the ttl ended it
	}
	if err != nil {
		return err
	}
	if parts := r.parts(); parts > 0 {
		within, cancel = context.WithDeadline(ctx, began.Add(answerWithin+time.Duration(parts)*partWithin))
		defer cancel()
	}
	return q.announce(within, at, r, "")
}

// parts is how many there are of payloads beside the record.
func (r *record) parts() (n int) {
	for _, ref := range []*payloadRef{r.inRef, r.outRef} {
		if ref != nil {
			n += ref.Parts
		}
	}
	return n
}

// AnnounceAgain queues the end of a job's latest attempt once more, whatever
// became of its webhook; one that is still to be tried is as good. It
// returns job.ErrNotFound if the job is no longer kept, has not ended, has no
// webhook, or is of an earlier endpoint of that id, and ErrUnavailable.
func (q *Queue) AnnounceAgain(ctx context.Context, e endpoint.Endpoint, id job.ID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	r, err := q.latest(ctx, at, id)
	if err != nil {
		return err
	}
	if r.Webhook == "" || !r.Status.Terminal() || OfEarlier(e, &r.Job) {
		return job.ErrNotFound
	}
	return q.announce(ctx, at, r, nuid.Next())
}

// announce writes the message; replay is "" the first time. Of the copies that
// it makes none stays that no message names, unless a crash or an outage comes
// in between: then it expires.
func (q *Queue) announce(ctx context.Context, at place, r *record, replay string) error {
	var kept []string
	if r.parts() > 0 {
		if replay == "" { // a look is cheaper than a copy in vain
			_, err := q.leaderLast(ctx, streams.Webhooks, streams.WebhookSubject(at.endpoint, r.ID, r.Attempt))
			if !errors.Is(err, errNoMessage) {
				return err
			}
		}
		var err error
		if kept, err = q.keepPayloads(ctx, at, r, replay); err != nil {
			q.dropKept(ctx, at, kept)
			return fmt.Errorf("announce job %s: %w", r.ID, err)
		}
	}
	there, err := q.queueAnnounced(ctx, at, r, replay)
	if there || err != nil && !errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		q.dropKept(ctx, at, kept)
	}
	if err != nil {
		return fmt.Errorf("announce job %s: %w", r.ID, err)
	}
	return nil
}

// queueAnnounced queues the end; there means that one that is as good lies
// there already. After an error that is ErrUnavailable, or of ctx, it may be
// queued all the same.
func (q *Queue) queueAnnounced(ctx context.Context, at place, r *record, replay string) (there bool, err error) {
	r.s3 = nil // a secret of the worker's
	m, err := r.message(streams.WebhookSubject(at.endpoint, r.ID, r.Attempt), decision)
	if err != nil {
		return false, err
	}
	shorten(m, r)
	if replay == "" {
		err = q.queueCompletion(ctx, m, time.Time{})
	} else {
		var other *stored
		m.Header.Set(replayHeader, replay)
		other, err = q.queueAgain(ctx, m, time.Now().Add(leaving))
		there = other != nil
	}
	if errors.Is(err, errConflict) && !errors.Is(err, ErrUnavailable) { // else the other one may be this one
		return true, nil
	}
	return there, err
}

// queueCompletion puts one into the work queue, errConflict if one of the same
// attempt lies there at the time until, and until then: what was delivered or
// kept stays there for a moment after the log or the other stream has it.
func (q *Queue) queueCompletion(ctx context.Context, m *nats.Msg, until time.Time) error {
	for {
		_, err := q.publish(ctx, streams.Webhooks, m, nuid.Next(), 0)
		if !errors.Is(err, errConflict) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
			return err
		}
	}
}

// keepPayloads replaces r's references by those of copies, and returns the
// subjects of the copies that it made or began. Only a replay fails if there is
// nothing to copy.
func (q *Queue) keepPayloads(ctx context.Context, at place, r *record, replay string) (kept []string, err error) {
	until := q.Now().Add(streams.WebhooksAge)
	for side, ref := range map[streams.Side]**payloadRef{streams.In: &r.inRef, streams.Out: &r.outRef} {
		if *ref == nil {
			continue
		}
		data, err := q.loadPayload(ctx, at, *ref)
		switch {
		case errors.Is(err, errPayload) && side == streams.In && !retryable(r.Status):
			*ref = nil // it was announced before, and the input dropped since
			continue
		case errors.Is(err, errPayload) && replay == "":
			continue // a power loss took it: whoever delivers finds it gone
		case err != nil:
			return kept, err
		}
		subject := streams.KeptSubject(at.partition, at.endpoint, r.ID, r.Attempt, side, nuid.Next())
		kept = append(kept, subject)
		if *ref, err = q.storeParts(ctx, at, subject, data, until); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// dropKept removes copies that nobody needs, also if ctx has ended.
func (q *Queue) dropKept(ctx context.Context, at place, kept []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryWithin)
	defer cancel()
	for _, subject := range kept {
		if err := q.purgeAll(ctx, streams.Payloads(at.partition), subject); err != nil {
			q.log.DebugContext(ctx, "copy not removed, it expires", "subject", subject, "error", err)
		}
	}
}
