package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nuid"
	"golang.org/x/sync/semaphore"

	"flightline/shared/bus"
	"flightline/shared/mutation"
	"flightline/shared/record"
	"flightline/streams"
)

// maxInlinePayload is the largest payload, in bytes, that travels in the message itself.
const maxInlinePayload = 256 << 10

// ExtraTime is how much longer than bus.CallTimeout a call may take that stores an input
// or an output of so many bytes: 0 up to 256 KiB, which are in the message itself, and
// record.ExtraTime beyond, for a payload beside its message.
func ExtraTime(size int) time.Duration {
	if size <= maxInlinePayload {
		return 0
	}
	return record.ExtraTime(size)
}

// payloads stores and reads the inputs and outputs that are beside their messages.
type payloads struct {
	bus   *bus.Client
	turns *semaphore.Weighted // bytes of those that are read at a time
	reach func(Point)
}

// store stores data in parts until an hour after until, under a subject
// of its own: run keeps two runs apart, the token two writers of one run.
func (p *payloads) store(ctx context.Context, at record.Location, r *record.Record, side streams.Side, data []byte, until time.Time) (*record.PayloadRef, error) {
	run, token := r.Run, nuid.Next()
	if mutation.NoFence {
		run, token = 0, "shared"
	}
	subject := streams.PayloadSubject(at.Partition, at.Endpoint, r.ID, r.Attempt, run, side, token)
	ref, err := record.StorePayload(ctx, p.bus, subject, data, until)
	if err != nil {
		return nil, fmt.Errorf("store payload of job %s: %w", r.ID, err)
	}
	p.reach(AfterPayload)
	return ref, nil
}

// place puts an input into r, inline or beside it.
func (p *payloads) place(ctx context.Context, at record.Location, r *record.Record, input []byte) error {
	if len(input) <= maxInlinePayload {
		r.Input, r.InputRef = input, nil
		return nil
	}
	ref, err := p.store(ctx, at, r, streams.In, input, r.Expires)
	if err != nil {
		return err
	}
	r.Input, r.InputRef = nil, ref
	return nil
}

// carry stores the payload of ref once more so that it lives until r.Expires.
func (p *payloads) carry(ctx context.Context, at record.Location, r *record.Record, side streams.Side, ref *record.PayloadRef) (*record.PayloadRef, error) {
	if ref == nil {
		return nil, nil //nolint:nilnil // no payload beside the message is carried as none
	}
	data, err := record.LoadPayload(ctx, p.bus, ref)
	if err != nil {
		return nil, err
	}
	return p.store(ctx, at, r, side, data, r.Expires)
}

// payloadClaim is where WithPayloadClaim keeps its function.
type payloadClaim struct{}

// WithPayloadClaim has claim called before a large input or output is read with ctx, with
// its size in bytes. An error of claim ends the reading, and is what the caller gets; a job
// that it keeps from being picked up is delivered again after a second. NextIf calls it
// with 0 when the job whose input it was called for is not picked up.
func WithPayloadClaim(ctx context.Context, claim func(bytes int) error) context.Context {
	return context.WithValue(ctx, payloadClaim{}, claim)
}

// claimPayload calls the function of WithPayloadClaim, if there is one.
func claimPayload(ctx context.Context, bytes int) error {
	if claim, ok := ctx.Value(payloadClaim{}).(func(int) error); ok {
		return claim(bytes)
	}
	return nil
}

// maxPayloadsRead bounds the bytes of large inputs and outputs that are read at a time.
// NATS cuts off a connection to which it has 64 MB to write.
const maxPayloadsRead = 32 << 20

// load reads an input or an output for a caller, in its turn.
func (p *payloads) load(ctx context.Context, ref *record.PayloadRef) ([]byte, error) {
	if err := claimPayload(ctx, ref.Size); err != nil {
		return nil, err
	}
	bytes := min(int64(ref.Size), maxPayloadsRead)
	if err := p.turns.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("%w: read an input or output: %w", bus.ErrUnavailable, err)
	}
	defer p.turns.Release(bytes)
	return record.LoadPayload(ctx, p.bus, ref)
}
