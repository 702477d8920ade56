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
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/job"
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
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := c.read(ctx)
	if errors.Is(err, errNoMessage) {
		return nil // somebody else has kept or delivered it
	}
	if err != nil {
		return err
	}
	subject := streams.UndeliveredSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt)
	kept := c.q.carried(subject, m.header, m.data, c.Job.Finished)
	kept.Header.Set(reasonHeader, string(why))
	kept.Header.Set(destinationHeader, destination)
	if err := c.q.put(ctx, streams.Undelivered, kept); err != nil {
		return fmt.Errorf("keep the webhook of job %s: %w", c.Job.ID, err)
	}
	if c.q.numbered(c.server) {
		_ = c.msg.Ack()
	}
	return nil
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

// put stores a message whatever lies on its subject.
func (q *Queue) put(ctx context.Context, stream string, m *nats.Msg) error {
	_, err := untilAnswered(ctx, func() (uint64, error) {
		server := q.nc.ConnectedServerId()
		seq, err := q.store(ctx, stream, m)
		if err == nil {
			err = q.durable(ctx, stream, server)
		}
		return seq, err
	})
	return err
}

// ReplayOf says which of an endpoint's kept completions are to be delivered
// after all. Zero fields do not matter.
type ReplayOf struct {
	Job job.ID
	// Since leaves out what was kept before it, in server time.
	Since       time.Time
	Reason      Reason
	Destination string
}

func (f ReplayOf) matches(m *nats.Msg) bool {
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	return (f.Since.IsZero() || err == nil && !at.Before(f.Since)) &&
		(f.Reason == "" || f.Reason == Reason(m.Header.Get(reasonHeader))) &&
		(f.Destination == "" || f.Destination == m.Header.Get(destinationHeader))
}

// ReplayKept queues kept completions of an endpoint ("" for all) once more and
// returns how many. Each begins anew: it has all its attempts before it. It
// returns ErrUnavailable with the number so far; it may be repeated.
func (q *Queue) ReplayKept(ctx context.Context, endpoint string, which ReplayOf) (int, error) {
	count := 0
	until := time.Now().Add(leaving)
	for from := uint64(1); ; {
		page, err := q.keptFrom(ctx, from, streams.UndeliveredFilter(endpoint, which.Job))
		if err != nil || len(page) == 0 {
			return count, err
		}
		for _, m := range page {
			from = bus.Sequence(m) + 1
			if !which.matches(m) {
				continue
			}
			queued, err := q.replay(ctx, m, until)
			if err != nil {
				return count, err
			}
			if queued {
				count++
			}
		}
	}
}

func (q *Queue) keptFrom(ctx context.Context, from uint64, filter string) ([]*nats.Msg, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return untilAnswered(ctx, func() ([]*nats.Msg, error) {
		return q.batchGet(ctx, streams.Undelivered, filter, from, keptPage)
	})
}

// replay moves one completion back, and reports whether it is there now. One that
// an earlier replay put there is as good; any other is on its way out, and takes
// no kept one with it.
func (q *Queue) replay(ctx context.Context, m *nats.Msg, until time.Time) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ep, id, attempt, err := streams.ParseCompletion(m.Header.Get("Nats-Subject"))
	if err != nil {
		return false, err
	}
	w, err := parseWire(m.Header.Get(metaHeader))
	if err != nil {
		return false, fmt.Errorf("decode job %s: %w", id, err)
	}
	again := q.carried(streams.WebhookSubject(ep, id, attempt), m.Header, m.Data, instant(w.Finished))
	again.Header.Set(triedHeader, "yes")
	if Reason(m.Header.Get(reasonHeader)) == GivenUp {
		again.Header.Set(replayHeader, nuid.Next())
	}
	err = q.queueCompletion(ctx, again, until)
	if errors.Is(err, errConflict) {
		there, failed := q.leaderLast(ctx, streams.Webhooks, again.Subject)
		if errors.Is(failed, errNoMessage) || failed == nil && there.header.Get(triedHeader) == "" {
			return false, nil
		}
		err = failed
	}
	if err != nil {
		return false, fmt.Errorf("replay the webhook of job %s: %w", id, err)
	}
	return true, q.remove(ctx, streams.Undelivered, bus.Sequence(m))
}
