package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Window is a part of a list that is read from its newest end.
type Window struct {
	// Before is where to go on: what the call before returned as next. 0 means
	// the newest end.
	Before uint64
	// Most bounds the number of jobs; at least 1.
	Most int
	// Statuses are those wanted. None means all that the list has.
	Statuses []job.Status
	// Since ends the list at what was written before. The zero time means nothing.
	Since time.Time
}

func (w Window) wants(s job.Status) bool {
	return len(w.Statuses) == 0 || slices.Contains(w.Statuses, s)
}

// Listed is a job in a list, without output.
type Listed struct {
	Job job.Job
	// Seq is its place; a later page goes on before it.
	Seq uint64
}

// listChunks is how many times one call may go on after it found too little:
// what it costs is bounded, however much there is that nobody wants.
const listChunks = 8

// ListLive returns the endpoint's jobs that are IN_QUEUE or IN_PROGRESS, in the
// order in which they were queued, the last one first. next is the Before of
// the following page, 0 after the last one; a page may be short or empty all
// the same. Its cost depends on Most, not on the number of jobs: it walks over
// queue messages and looks up the records of those on the page. Any replica may
// answer, so the last writes may be missing. It returns ErrUnavailable.
//
// A run whose ttl was lengthened is listed until the ttl it had before is over:
// its queue message ends then.
func (q *Queue) ListLive(ctx context.Context, e endpoint.Endpoint, w Window) (jobs []Listed, next uint64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	if w.Before == 0 && !w.wants(job.InQueue) {
		if w.Before, err = q.delivered(ctx, e.ID); err != nil || w.Before == 0 {
			return nil, 0, err
		}
	}
	return q.walk(ctx, streams.Jobs(e.ID), ">", w, func(got []*nats.Msg) ([]*record, error) { return q.live(ctx, at, got) })
}

// ListEnded returns the endpoint's jobs that are over and can still be read, in
// the order of the last write, the newest first; else it is like ListLive. A
// job that was retried is left out.
func (q *Queue) ListEnded(ctx context.Context, e endpoint.Endpoint, w Window) (jobs []Listed, next uint64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at := placeOf(e)
	jobs, next, err = q.walk(ctx, streams.Records(e.Partition), streams.AnyAttempt(e.Partition, e.ID, "*"), w,
		func(got []*nats.Msg) ([]*record, error) { return q.ended(ctx, at, got) })
	if err == nil && len(jobs) > 0 { // nobody sees an end that a power loss may undo
		err = q.durable(ctx, streams.Records(e.Partition), q.nc.ConnectedServerId())
	}
	return jobs, next, err
}

// walk reads a stream backwards until the window is full, or for listChunks.
// of turns messages into the records that may be shown, nil for the others.
func (q *Queue) walk(ctx context.Context, stream, filter string, w Window, of func([]*nats.Msg) ([]*record, error)) (jobs []Listed, next uint64, err error) {
	first, last, err := q.ends(ctx, stream)
	if err != nil || last == 0 {
		return nil, 0, err
	}
	back := bus.Back{Stream: streams.DirectGet(stream), Filter: filter, First: first, Before: w.Before, Most: max(1, w.Most)}
	if w.Before == 0 || w.Before > last {
		back.Before = last + 1
	}
	for range listChunks {
		got, next, err := q.backwards(ctx, back)
		if err != nil {
			return nil, 0, err
		}
		found, err := of(got)
		if err != nil {
			return nil, 0, err
		}
		var taken int
		if jobs, taken = q.take(jobs, got, found, w); taken < len(got) || len(jobs) == back.Most && next > 0 {
			return jobs, bus.Sequence(got[taken-1]), nil
		}
		if next == 0 || len(got) > 0 && writtenBefore(got[len(got)-1], w.Since) {
			return jobs, 0, nil
		}
		back.Before = next
	}
	return jobs, back.Before, nil
}

// take adds to jobs what the window wants of the records found, until it is
// full, and returns how many it has looked at.
func (q *Queue) take(jobs []Listed, got []*nats.Msg, found []*record, w Window) ([]Listed, int) {
	now := q.Now()
	for i, r := range found {
		if r == nil || !r.Visible(now) || !w.wants(r.Status) {
			continue
		}
		if len(jobs) == max(1, w.Most) {
			return jobs, i
		}
		r.Output = nil
		jobs = append(jobs, Listed{r.Job, bus.Sequence(got[i])})
	}
	return jobs, len(found)
}

// writtenBefore reports whether the server stored m before t.
func writtenBefore(m *nats.Msg, t time.Time) bool {
	written, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return err == nil && written.Before(t)
}

func (q *Queue) backwards(ctx context.Context, b bus.Back) (got []*nats.Msg, next uint64, err error) {
	got, err = untilAnswered(ctx, func() ([]*nats.Msg, error) {
		var err error
		got, next, err = bus.Backwards(ctx, q.nc, b)
		return got, unanswered(err)
	})
	return got, next, err
}

func unanswered(err error) error {
	if errors.Is(err, bus.ErrNoAnswer) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// live are the records of queue messages; nil for a message that is left over
// from an attempt that has ended.
func (q *Queue) live(ctx context.Context, at place, got []*nats.Msg) ([]*record, error) {
	found, subjects := make([]*record, len(got)), make([]string, len(got))
	for i, m := range got {
		r, err := q.waiting(at, m)
		if err != nil {
			return nil, err
		}
		found[i], subjects[i] = r, streams.RecordSubject(at.partition, at.endpoint, r.ID, r.Attempt)
	}
	records, err := q.lastOf(ctx, streams.Records(at.partition), subjects)
	if err != nil {
		return nil, err
	}
	decided := make(map[job.ID]*record, len(records))
	for _, m := range records {
		r, err := headOf(at.partition, m.Header.Get("Nats-Subject"), m.Header, bus.Sequence(m))
		if err != nil {
			return nil, err
		}
		decided[r.ID] = r
	}
	for i, r := range found {
		if d := decided[r.ID]; d != nil {
			found[i] = d
			if d.Status.Terminal() {
				found[i] = nil
			}
		}
	}
	return found, nil
}

// waiting is what the header of a queue message says.
func (q *Queue) waiting(at place, m *nats.Msg) (*record, error) {
	id := streams.JobOf(m.Header.Get("Nats-Subject"))
	w, err := parseWire(m.Header.Get(metaHeader))
	if err != nil {
		return nil, fmt.Errorf("decode job %s: %w", id, err)
	}
	r := w.record(at, id, 0)
	r.queueSeq = bus.Sequence(m)
	return r, nil
}
