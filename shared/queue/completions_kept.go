package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// Reason says why a completion lies where nobody tries to deliver it.
type Reason string

// The two reasons.
const (
	// GivenUp: all attempts failed.
	GivenUp Reason = "given up"
	// DestinationPaused: its destination was paused.
	DestinationPaused Reason = "paused"
)

const (
	reasonHeader      = "Flightline-Reason"
	destinationHeader = "Flightline-Destination"
	// keptPage is how many completions are moved at a time, with up to half a
	// megabyte each.
	keptPage = 32
)

// Keep takes the completion out of the queue and keeps it, for as long as it
// would have waited there, for Replay. It bears repeating, and returns
// ErrUnavailable: then it is still in the queue.
func (c *Completion) Keep(ctx context.Context, why Reason, destination string) error {
	_, err := c.KeepIf(ctx, why, destination, nil)
	return err
}

// KeepIf is Keep for a reason that may be over by now: holds is asked when the
// completion is kept and still in the queue too. Whoever ended the reason before
// that, and looked for what is kept, may have missed it; whoever ends it
// afterwards finds it. If it is over, or not known, kept is false and the completion
// is in the queue only.
func (c *Completion) KeepIf(ctx context.Context, why Reason, destination string, holds func(context.Context) (bool, error)) (kept bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	seq, err := c.copyAside(ctx, why, destination)
	if err != nil || seq == 0 {
		return err == nil, err
	}
	if holds != nil {
		ok, err := holds(ctx)
		if err == nil && !ok {
			err = c.q.remove(ctx, streams.Undelivered, seq)
		} else if err != nil {
			c.q.deleteSeq(ctx, streams.Undelivered, seq) // else it may be sent twice
		}
		if err != nil || !ok {
			return false, err
		}
	}
	if c.numbered() {
		_ = c.msg.Ack()
	}
	return true, nil
}

// copyAside stores the completion among those that are kept and returns its
// sequence there, 0 if somebody else has kept or delivered it.
func (c *Completion) copyAside(ctx context.Context, why Reason, destination string) (uint64, error) {
	m, err := c.read(ctx)
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	subject := streams.UndeliveredSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt)
	kept := c.q.carried(subject, m.header, m.data, c.Job.Finished)
	kept.Header.Set(reasonHeader, string(why))
	kept.Header.Set(destinationHeader, destination)
	seq, err := c.q.put(ctx, streams.Undelivered, kept)
	if err != nil {
		return 0, fmt.Errorf("keep the webhook of job %s: %w", c.Job.ID, err)
	}
	return seq, nil
}

// carried is a completion for another stream, without what the server added.
// It ends when it would have ended in the first one.
func (q *Queue) carried(subject string, header nats.Header, data []byte, finished time.Time) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: data, Header: make(nats.Header, len(header)+2)}
	for _, key := range slices.Collect(maps.Keys(header)) {
		switch key {
		case metaHeader, changeHeader, replayHeader, inputHeader:
			m.Header[key] = header[key]
		}
	}
	m.Header.Set(jetstream.MsgTTLHeader, ttlHeader(q.Now(), finished.Add(streams.WebhooksAge)))
	return m
}

// put stores a message whatever lies on its subject, and returns its sequence.
func (q *Queue) put(ctx context.Context, stream string, m *nats.Msg) (uint64, error) {
	return untilAnswered(ctx, func() (uint64, error) {
		server := q.nc.ConnectedServerId()
		seq, err := q.store(ctx, stream, m)
		if err == nil {
			err = q.durable(ctx, stream, server)
		}
		return seq, err
	})
}
