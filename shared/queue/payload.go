package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"flightline/shared/mutation"
	"flightline/shared/record"
	"flightline/streams"
)

// maxInlinePayload is the largest payload, in bytes, that travels in the message itself.
const maxInlinePayload = 256 << 10

// StoreTimeout is how much longer than bus.CallTimeout a call may take that stores an input
// or an output of so many bytes: record.StoreTimeout if it is stored beside its message.
func StoreTimeout(size int) time.Duration {
	if size <= maxInlinePayload {
		return 0
	}
	return record.StoreTimeout(size)
}

// storePayload stores data in parts until an hour after until, under a subject
// of its own: run keeps two runs apart, the token two writers of one run.
func (q *Queue) storePayload(ctx context.Context, at record.Location, r *record.Record, side streams.Side, data []byte, until time.Time) (*record.PayloadRef, error) {
	run, token := r.Run, nuid.Next()
	if mutation.NoFence {
		run, token = 0, "shared"
	}
	subject := streams.PayloadSubject(at.Partition, at.Endpoint, r.ID, r.Attempt, run, side, token)
	ref, err := record.StorePayload(ctx, q.bus, subject, data, until)
	if err != nil {
		return nil, fmt.Errorf("store payload of job %s: %w", r.ID, err)
	}
	q.Reach(AfterPayload)
	return ref, nil
}

// placeInput puts an input into r, inline or beside it.
func (q *Queue) placeInput(ctx context.Context, at record.Location, r *record.Record, input []byte) error {
	if len(input) <= maxInlinePayload {
		r.Input, r.InputRef = input, nil
		return nil
	}
	ref, err := q.storePayload(ctx, at, r, streams.In, input, r.Expires)
	if err != nil {
		return err
	}
	r.Input, r.InputRef = nil, ref
	return nil
}

// carry stores the payload of ref once more so that it lives until r.Expires.
func (q *Queue) carry(ctx context.Context, at record.Location, r *record.Record, side streams.Side, ref *record.PayloadRef) (*record.PayloadRef, error) {
	if ref == nil {
		return nil, nil //nolint:nilnil // no payload beside the message is carried as none
	}
	data, err := record.LoadPayload(ctx, q.bus, ref)
	if err != nil {
		return nil, err
	}
	return q.storePayload(ctx, at, r, side, data, r.Expires)
}
