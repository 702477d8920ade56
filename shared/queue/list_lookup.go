package queue

import (
	"context"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Lookup reads where several jobs stand, in few requests and without output.
// Jobs that cannot be seen, or no longer, are left out. Any replica may answer,
// so the last writes may be missing. It returns ErrUnavailable.
func (q *Queue) Lookup(ctx context.Context, e endpoint.Endpoint, ids []job.ID) (map[job.ID]job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	newest, err := q.newestOf(ctx, placeOf(e), ids)
	if err != nil {
		return nil, err
	}
	now, seen := q.Now(), make(map[job.ID]job.Job, len(newest))
	for id, r := range newest {
		if r.Visible(now) {
			r.Output = nil
			seen[id] = r.Job
		}
	}
	return seen, q.durable(ctx, streams.Records(e.Partition), q.nc.ConnectedServerId())
}

// newestOf is the highest attempt of each job: its record, or its queue
// message while it has no record. Messages are read first: what is taken from
// the queue in between has a record by then.
func (q *Queue) newestOf(ctx context.Context, at place, ids []job.ID) (map[job.ID]*record, error) {
	var waiting, records []string
	for _, id := range ids {
		waiting = append(waiting, streams.AnyClass(at.endpoint, id))
		records = append(records, streams.AnyAttempt(at.partition, at.endpoint, id))
	}
	queued, err := q.lastOf(ctx, streams.Jobs(at.endpoint), waiting)
	if err != nil {
		return nil, err
	}
	decided, err := q.lastOf(ctx, streams.Records(at.partition), records)
	if err != nil {
		return nil, err
	}
	newest := make(map[job.ID]*record, len(ids))
	for _, m := range decided {
		r, err := headOf(at.partition, m.Header.Get("Nats-Subject"), m.Header, bus.Sequence(m))
		if err != nil {
			return nil, err
		}
		if old := newest[r.ID]; old == nil || old.Attempt < r.Attempt {
			newest[r.ID] = r
		}
	}
	for _, m := range queued {
		r, err := q.waiting(at, m)
		if err != nil {
			return nil, err
		}
		if old := newest[r.ID]; old == nil || old.Attempt < r.Attempt {
			newest[r.ID] = r
		}
	}
	return newest, nil
}

// lastOf reads the last message on each of the subjects.
func (q *Queue) lastOf(ctx context.Context, stream string, subjects []string) ([]*nats.Msg, error) {
	return untilAnswered(ctx, func() ([]*nats.Msg, error) {
		got, err := bus.LastOf(ctx, q.nc, streams.DirectGet(stream), subjects)
		return got, unanswered(err)
	})
}

// ended are the records that messages hold; nil for an attempt that has not
// ended, or that another one followed.
func (q *Queue) ended(ctx context.Context, at place, got []*nats.Msg) ([]*record, error) {
	found := make([]*record, len(got))
	var again []job.ID // may have been retried
	for i, m := range got {
		r, err := headOf(at.partition, m.Header.Get("Nats-Subject"), m.Header, bus.Sequence(m))
		if err != nil {
			return nil, err
		}
		if !r.Status.Terminal() {
			continue
		}
		found[i] = r
		if retryable(r.Status) {
			again = append(again, r.ID)
		}
	}
	if len(again) == 0 {
		return found, nil
	}
	newest, err := q.newestOf(ctx, at, again)
	if err != nil {
		return nil, err
	}
	for i, r := range found {
		if r != nil && newest[r.ID] != nil && newest[r.ID].Attempt > r.Attempt {
			found[i] = nil
		}
	}
	return found, nil
}
