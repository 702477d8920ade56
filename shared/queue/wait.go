package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// pollInterval backs up the waiters' subscription, which may miss a message.
const pollInterval = 5 * time.Second

// Watch waits for the end of one job. It costs one subscription, no consumer.
type Watch struct {
	q       *Queue
	at      record.Location
	id      job.ID
	sub     *nats.Subscription
	moved   chan *nats.Msg
	expires time.Time // known of a job that was just submitted
}

// Watch begins to watch a job. Close it.
func (q *Queue) Watch(e endpoint.Endpoint, id job.ID) (*Watch, error) {
	return q.watch(e, id, streams.Moved(e.ID, id))
}

// WatchNew begins to watch a job that is about to be submitted: watch first,
// then submit and call Submitted, and nothing is missed. It sees the first
// attempt only, for which the server has less to look up. Close it.
func (q *Queue) WatchNew(e endpoint.Endpoint, id job.ID) (*Watch, error) {
	return q.watch(e, id, streams.MovedFirst(e.ID, id))
}

func (q *Queue) watch(e endpoint.Endpoint, id job.ID, subject string) (*Watch, error) {
	const bursts = 16 // a waiter needs the last one only; older ones may be dropped
	w := &Watch{q: q, at: record.LocationOf(e), id: id, moved: make(chan *nats.Msg, bursts)}
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	sub, err := q.nc.ChanSubscribe(subject, w.moved)
	if err != nil {
		return nil, fmt.Errorf("watch job %s: %w: %w", id, bus.ErrUnavailable, err)
	}
	w.sub = sub
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() { _ = w.sub.Unsubscribe() }

// Submitted says that j was submitted after the watch began, which saves Wait
// its first look.
func (w *Watch) Submitted(j *job.Job) { w.expires = j.Expires }

// Wait returns the job once it is terminal, with its output. It returns
// ctx.Err() when ctx ends first, and job.ErrNotFound when there is no such job
// or its ttl ended it. It sits out an outage of JetStream.
func (w *Watch) Wait(ctx context.Context) (*job.Job, error) {
	look := w.expires.IsZero()
	again := time.NewTimer(w.pause())
	defer again.Stop()
	for {
		if look {
			j, err := w.look(ctx)
			if j != nil || err != nil {
				return j, err
			}
			again.Reset(w.pause())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-again.C:
			look = true
		case m := <-w.moved:
			r, whole := w.parseRepeated(m)
			switch {
			case r == nil:
				look = true
			case r.Status.Terminal() && whole && r.Visible(w.q.Now()) && w.q.read.waitRecordDurable(ctx, w.at, r) == nil:
				return &r.Job, nil
			default:
				if look = r.Status.Terminal(); !look && !r.Expires.Equal(w.expires) {
					w.expires = r.Expires
					again.Reset(w.pause())
				}
			}
		}
	}
}

// pause is how long Wait relies on its subscription: the server does not say that a
// job expired.
func (w *Watch) pause() time.Duration { return min(w.q.Until(w.expires), pollInterval) }

// parseRepeated reads a repeated header, nil if that cannot be decoded; whole: it has all that a
// caller may see.
func (w *Watch) parseRepeated(m *nats.Msg) (r *record.Record, whole bool) {
	r, whole, err := record.ParseHeader(w.at, w.id, m.Header, 0)
	if err != nil {
		return nil, false
	}
	r.Server = w.q.nc.ConnectedServerId()
	return r, whole
}

// look reads where the job stands; nil if there is more to wait for, or if
// JetStream did not answer.
func (w *Watch) look(ctx context.Context) (*job.Job, error) {
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	j, err := w.ended(within)
	if errors.Is(err, bus.ErrUnavailable) || err != nil && within.Err() != nil {
		if w.q.Until(w.expires) <= 0 { // unknown, or over while JetStream does not answer: no reason to look again at once
			w.expires = w.q.Now().Add(pollInterval)
		}
		return nil, ctx.Err()
	}
	return j, err
}

// ended reads the job; nil if it has not ended.
func (w *Watch) ended(ctx context.Context) (*job.Job, error) {
	r, err := w.q.current(ctx, w.at, w.id)
	if err != nil {
		return nil, err
	}
	w.expires = r.Expires
	if !r.Status.Terminal() {
		return nil, nil //nolint:nilnil // not yet
	}
	return w.q.loaded(ctx, w.at, r)
}
