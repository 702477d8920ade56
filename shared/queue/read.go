package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// ReadChanged reads the record that c was written to from the leader, also an expired
// one, with that write or a later one. It returns bus.ErrNoMessage, record.ErrDamaged and
// bus.ErrUnavailable.
//
// In a cluster the consumer that shows changes may run on a replica that has applied a write
// before the leader, which then still has the write before, or none
// (docs/design/jetstream.md#f19).
func (q *Queue) ReadChanged(ctx context.Context, c RecordChange) (*record.Record, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.Location{Endpoint: c.Job.Endpoint, Partition: c.Partition}
	return bus.UntilAnswered(ctx, func() (*record.Record, error) {
		r, err := q.read.record(ctx, at, c.Job.ID, c.Job.Attempt)
		if errors.Is(err, bus.ErrNoMessage) && q.bus.Clustered() {
			if err = q.read.commitRecords(ctx, at); err == nil {
				r, err = q.read.record(ctx, at, c.Job.ID, c.Job.Attempt)
			}
		}
		if err == nil && r.Seq < c.Seq {
			return nil, fmt.Errorf("%w: the record of job %s is behind its change", bus.ErrUnavailable, c.Job.ID)
		}
		return r, err
	})
}

// current reads where a job stands: the record of its highest attempt, or the
// queue message of an attempt that has no record yet. It hides what has expired
// or is past its retention (job.ErrNotFound). It may write: it removes a record
// that a killed server brought back, finishes a ttl change that was cut off, and
// times out a run that is overdue and that its holder did not end.
func (q *Queue) current(ctx context.Context, at record.Location, id job.ID) (*record.Record, error) {
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	r, err := q.read.raw(ctx, at, id)
	if err != nil {
		return nil, err
	}
	now := q.Now()
	if !r.Visible(now) {
		return nil, job.ErrNotFound
	}
	switch gone, err := q.removeResurrected(ctx, at, r); {
	case gone || errors.Is(err, bus.ErrConflict):
		return q.current(ctx, at, id)
	case err != nil:
		return nil, err
	}
	if err := q.finishRequeue(ctx, at, r); errors.Is(err, bus.ErrConflict) {
		return q.current(ctx, at, id)
	} else if err != nil {
		return nil, err
	}
	if r.Overdue(now.Add(-deadlineGrace)) {
		ended, err := q.timeOut(ctx, at, r)
		if errors.Is(err, bus.ErrConflict) { // another ended it, or its ttl has passed
			return q.current(ctx, at, id)
		}
		return ended, err
	}
	return r, nil
}

// Current returns the record of a job's latest attempt, or its queue message while
// it has no record, without an output that is stored beside it. It returns
// job.ErrNotFound if it does not exist, its ttl is over, or its retention is, and
// bus.ErrUnavailable. An end that it returns is on the disk.
func (q *Queue) Current(ctx context.Context, e endpoint.Endpoint, id job.ID) (*record.Record, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	r, err := q.current(ctx, at, id)
	if err == nil {
		err = q.read.waitRecordDurable(ctx, at, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Status reads a job with its output. It returns job.ErrNotFound if there is
// none, its ttl is over, or its retention is.
func (q *Queue) Status(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	r, err := q.current(ctx, record.LocationOf(e), id)
	if err != nil {
		return nil, err
	}
	return q.loaded(ctx, record.LocationOf(e), r)
}

// DurableStatus is Status for an answer that promises, as that of Submit did, that
// the job is on the disk.
func (q *Queue) DurableStatus(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	r, err := q.current(ctx, record.LocationOf(e), id)
	if err == nil {
		err = q.read.waitJobDurable(ctx, record.LocationOf(e), r)
	}
	if err != nil {
		return nil, err
	}
	return q.loaded(ctx, record.LocationOf(e), r)
}

// StoredJob is a job as its newest record on the disk has it, also after the end of
// its ttl or retention. It returns job.ErrNotFound and bus.ErrUnavailable.
func (q *Queue) StoredJob(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	r, err := q.read.raw(ctx, record.LocationOf(e), id)
	if err == nil {
		err = q.read.waitJobDurable(ctx, record.LocationOf(e), r)
	}
	if err != nil {
		return nil, err
	}
	return &r.Job, nil
}

// loaded is the job of a record, with an output that is beside it.
func (q *Queue) loaded(ctx context.Context, at record.Location, r *record.Record) (*job.Job, error) {
	if err := q.read.waitRecordDurable(ctx, at, r); err != nil {
		return nil, err
	}
	if r.OutputRef != nil {
		out, err := q.payloads.load(ctx, r.OutputRef)
		if err != nil {
			return nil, err
		}
		r.Output = out
	}
	j := r.Job
	return &j, nil
}

// A server that was killed builds its streams again from their files, and a
// message that gave way to a newer one on its subject left no mark there. So
// if the newer one was removed meanwhile, the older one is back: a record that
// was forgotten says IN_PROGRESS again. Such a resurrected record differs from a living one
// by its queue message, which a run that goes on has, and which was removed
// in a way that leaves a mark. Records for which that is not so, because their
// message was replaced, the run detached from it, or an end had its ttl
// changed, are kept on disk to their physical end (docs/adr/0013).

// ReadInput reads what a job was given, and the job as it is then, without output. The
// input is nil once nothing keeps it: that of a job which is COMPLETED or CANCELLED and has
// no webhook is dropped. A large one is read in its turn, after WithPayloadClaim. It returns
// job.ErrNotFound as Current does, and bus.ErrUnavailable.
func (q *Queue) ReadInput(ctx context.Context, e endpoint.Endpoint, id job.ID) (json.RawMessage, *job.Job, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	r, err := q.current(ctx, at, id)
	if err != nil {
		return nil, nil, err
	}
	from := r
	if r.Input == nil && r.InputRef == nil && !r.Status.Terminal() { // it runs: its queue message has it
		msg, err := q.read.message(ctx, at, id)
		if err != nil && !errors.Is(err, bus.ErrNoMessage) {
			return nil, nil, err
		}
		if err == nil && msg.Attempt == r.Attempt {
			from = msg
		}
	}
	if err := q.read.waitRecordDurable(ctx, at, r); err != nil {
		return nil, nil, err
	}
	input := from.Input
	if from.InputRef != nil {
		input, err = q.payloads.load(ctx, from.InputRef)
		if err != nil && !errors.Is(err, record.ErrPayloadGone) { // it was dropped meanwhile
			return nil, nil, err
		}
	}
	j := r.Job
	j.Output = nil
	return input, &j, nil
}

// removeResurrected reports whether r, which has not ended, is one, and removes it. It asks
// only if r is so old that it may have been forgotten. A message of a later
// attempt is none of r's: a retry follows an end. It returns bus.ErrConflict if r
// is no longer what is stored.
func (q *Queue) removeResurrected(ctx context.Context, at record.Location, r *record.Record) (bool, error) {
	young := cmp.Or(q.cfg.RemovalGrace, removalGrace) + endpoint.MinRetention
	if r.Status.Terminal() || r.Seq == 0 || r.RetainOnDisk || q.Now().Sub(r.Changed) < young {
		return false, nil
	}
	switch msg, err := q.read.message(ctx, at, r.ID); {
	case err == nil && msg.Attempt <= r.Attempt:
		return false, nil
	case err != nil && !errors.Is(err, bus.ErrNoMessage):
		return false, err
	}
	if proven, err := q.read.queueIsOriginal(ctx, at, r); err != nil || !proven {
		return false, err
	}
	now, err := q.read.record(ctx, at, r.ID, r.Attempt) // an end is written before its message goes
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return true, nil
	case err != nil:
		return false, err
	case now.Seq != r.Seq:
		return false, bus.ErrConflict
	}
	return true, q.bus.Remove(ctx, streams.Records(at.Partition), r.Seq)
}
