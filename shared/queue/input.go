package queue

import (
	"context"
	"encoding/json"
	"errors"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
)

// ReadInput reads what a job was given, and the job as it is then, without output. The
// input is nil once nothing keeps it: that of a job which is COMPLETED or CANCELLED is
// dropped. A large one is read in its turn, after WithPayloadClaim. It returns
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
