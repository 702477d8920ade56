package queue

import (
	"context"
	"errors"
	"fmt"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// readRecord reads the record of one attempt from the leader; errNoMessage.
func (q *Queue) readRecord(ctx context.Context, at place, id job.ID, attempt int) (*record, error) {
	return q.readLast(ctx, at, id, streams.Records(at.partition), streams.RecordSubject(at.partition, at.endpoint, id, attempt))
}

// readMessage reads the job's queue message from the leader; errNoMessage.
// It says IN_QUEUE, whatever the record says.
func (q *Queue) readMessage(ctx context.Context, at place, id job.ID) (*record, error) {
	r, err := q.readLast(ctx, at, id, streams.Jobs(at.endpoint), streams.AnyClass(at.endpoint, id))
	if err != nil {
		return nil, err
	}
	r.queueSeq, r.seq = r.seq, 0 // nothing is stored in the record yet
	return r, nil
}

func (q *Queue) readLast(ctx context.Context, at place, id job.ID, stream, subject string) (*record, error) {
	m, err := q.leaderLast(ctx, stream, subject)
	if err != nil {
		return nil, err
	}
	return q.decode(at, id, m)
}

// decode reads a record whose deadline this process is to judge.
func (q *Queue) decode(at place, id job.ID, m *stored) (*record, error) {
	r, err := decode(at, id, m)
	if err != nil {
		return nil, err
	}
	r.clock = q.clock
	return r, nil
}

// latest reads where a job stands: the record of its highest attempt, or the
// queue message of an attempt that has none yet. It hides what has expired
// (job.ErrNotFound), ends a run that everybody forgot, and finishes a ttl change
// that failed halfway.
func (q *Queue) latest(ctx context.Context, at place, id job.ID) (*record, error) {
	if !id.Valid() {
		return nil, job.ErrNotFound
	}
	r, err := q.newest(ctx, at, id)
	if err != nil {
		return nil, err
	}
	now := q.Now()
	if !r.Visible(now) {
		return nil, job.ErrNotFound
	}
	switch gone, err := q.ghost(ctx, at, r); {
	case gone || errors.Is(err, errConflict):
		return q.latest(ctx, at, id)
	case err != nil:
		return nil, err
	}
	if err := q.finishRequeue(ctx, at, r); errors.Is(err, errConflict) {
		return q.latest(ctx, at, id)
	} else if err != nil {
		return nil, err
	}
	if r.Overdue(now.Add(-forgotten)) {
		ended, err := q.timeOut(ctx, at, r)
		if errors.Is(err, errConflict) {
			return q.newest(ctx, at, id)
		}
		return ended, err
	}
	return r, nil
}

// newest is the record of a job's highest attempt, or its queue message while
// there is none, also one that has expired; job.ErrNotFound.
func (q *Queue) newest(ctx context.Context, at place, id job.ID) (*record, error) {
	lookUp := func() (*record, error) { return q.lookUp(ctx, at, id) }
	r, err := lookUp()
	if errors.Is(err, job.ErrNotFound) {
		return q.absent(ctx, at, lookUp)
	}
	return r, err
}

// lookUp is newest as far as the leaders know that are asked.
func (q *Queue) lookUp(ctx context.Context, at place, id job.ID) (*record, error) {
	records, anyOne := streams.Records(at.partition), streams.AnyAttempt(at.partition, at.endpoint, id)
	r, err := q.readLast(ctx, at, id, records, anyOne)
	if err != nil && !errors.Is(err, errNoMessage) {
		return nil, err
	}
	if r != nil && !retryable(r.Status) {
		return r, nil
	}
	waiting, err := q.readMessage(ctx, at, id)
	switch {
	case err == nil && (r == nil || waiting.Attempt > r.Attempt):
		return waiting, nil
	case err != nil && !errors.Is(err, errNoMessage):
		return nil, err
	case r != nil:
		return q.newerThan(ctx, at, r)
	}
	// The record may have been written, and the message removed, in between.
	r, err = q.readLast(ctx, at, id, records, anyOne)
	if errors.Is(err, errNoMessage) {
		return nil, job.ErrNotFound
	}
	return r, err
}

// newerThan guards against a touch that was written to attempt n after a retry
// had already begun attempt n+1: the newest write is then not the newest attempt.
func (q *Queue) newerThan(ctx context.Context, at place, r *record) (*record, error) {
	for {
		next, err := q.readRecord(ctx, at, r.ID, r.Attempt+1)
		if errors.Is(err, errNoMessage) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		r = next
	}
}

func retryable(s job.Status) bool {
	_, err := s.Next(job.Retry)
	return err == nil
}

// Status reads a job with its output. It returns job.ErrNotFound if there is
// none, its ttl is over, or its retention is.
func (q *Queue) Status(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := q.latest(ctx, placeOf(e), id)
	if err != nil {
		return nil, err
	}
	return q.loaded(ctx, placeOf(e), r)
}

// seen returns when the end that a caller is about to see is on the disk.
func (q *Queue) seen(ctx context.Context, at place, r *record) error {
	if !r.Status.Terminal() {
		return nil
	}
	return q.durable(ctx, streams.Records(at.partition), r.server)
}

// accepted returns when all that r shows is on the disk: the record, and the
// queue message that it may rest on.
func (q *Queue) accepted(ctx context.Context, at place, r *record) error {
	if err := q.durable(ctx, streams.Jobs(at.endpoint), r.server); err != nil {
		return err
	}
	return q.durable(ctx, streams.Records(at.partition), r.server)
}

// Accepted is Status for an answer that promises, as that of Submit did, that
// the job is on the disk.
func (q *Queue) Accepted(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := q.latest(ctx, placeOf(e), id)
	if err == nil {
		err = q.accepted(ctx, placeOf(e), r)
	}
	if err != nil {
		return nil, err
	}
	return q.loaded(ctx, placeOf(e), r)
}

// Known is the newest of a job that is still on the disk, also of one whose ttl
// or retention is over. It returns job.ErrNotFound and ErrUnavailable.
func (q *Queue) Known(ctx context.Context, e endpoint.Endpoint, id job.ID) (*job.Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := q.newest(ctx, placeOf(e), id)
	if err == nil {
		err = q.accepted(ctx, placeOf(e), r)
	}
	if err != nil {
		return nil, err
	}
	return &r.Job, nil
}

// loaded is the job of a record, with an output that lies beside it.
func (q *Queue) loaded(ctx context.Context, at place, r *record) (*job.Job, error) {
	if err := q.seen(ctx, at, r); err != nil {
		return nil, err
	}
	if r.outRef != nil {
		out, err := q.loadOutput(ctx, at, r.outRef)
		if err != nil {
			return nil, err
		}
		r.Output = out
	}
	j := r.Job
	return &j, nil
}

// outputClaim is where WithOutputClaim keeps its function.
type outputClaim struct{}

// WithOutputClaim has claim called before a large output is read with ctx, with its
// size in bytes. An error of claim ends the reading, and is what the caller gets.
func WithOutputClaim(ctx context.Context, claim func(bytes int) error) context.Context {
	return context.WithValue(ctx, outputClaim{}, claim)
}

// maxOutputsRead bounds the bytes of large outputs that are read at a time. NATS
// cuts off a connection to which it has 64 MB to write.
const maxOutputsRead = 32 << 20

// loadOutput reads an output for a caller, in its turn.
func (q *Queue) loadOutput(ctx context.Context, at place, ref *payloadRef) ([]byte, error) {
	if claim, ok := ctx.Value(outputClaim{}).(func(int) error); ok {
		if err := claim(ref.Size); err != nil {
			return nil, err
		}
	}
	bytes := min(int64(ref.Size), maxOutputsRead)
	if err := q.outputs.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("%w: read the output: %w", ErrUnavailable, err)
	}
	defer q.outputs.Release(bytes)
	return q.loadPayload(ctx, at, ref)
}
