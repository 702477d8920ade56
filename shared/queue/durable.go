package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/bus/barrier"
	"flightline/streams"
)

// findBarrier learns whether writes have to wait at the barrier of another
// process. Once one was found it is relied upon for good: if nobody answers
// there any more, nothing is known to be on the disk.
func (q *Queue) findBarrier(ctx context.Context) error {
	if q.barrier.Load() != nil {
		return nil
	}
	remote := barrier.NewRemote(q.nc, streams.DurablePrefix)
	there, err := remote.Exists(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if there {
		wait := barrier.Func(remote.Sync)
		q.barrier.CompareAndSwap(nil, &wait)
	}
	return nil
}

// lookForBarrier goes on looking: a server may take connections before the
// part beside it that serves the barrier does, or come back with one.
func (q *Queue) lookForBarrier(ctx context.Context) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for q.barrier.Load() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := q.findBarrier(ctx); err != nil && ctx.Err() == nil {
			q.log.DebugContext(ctx, "whether there is a barrier is unknown", "error", err)
		}
	}
	return nil
}

// Durable returns when what the server acknowledged for a stream until now is
// as safe as a submitted job: for those who write beside the queue. Without a
// barrier the acknowledgement has said so already. It returns ErrUnavailable
// if that is not known; the write may be there all the same.
func (q *Queue) Durable(ctx context.Context, stream string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return q.durable(ctx, stream, q.nc.ConnectedServerId())
}

// durable returns when what server acknowledged for the stream is as safe as
// it gets. It returns ErrUnavailable if that is not known: also when it is
// another server by now, which may have been started after a power loss. Then
// the write has to be looked for again.
func (q *Queue) durable(ctx context.Context, stream, server string) error {
	wait := q.barrier.Load()
	if wait == nil {
		return nil
	}
	err := (*wait)(ctx, stream)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case q.nc.ConnectedServerId() != server:
		return fmt.Errorf("%w: the server of %s was started anew", ErrUnavailable, stream)
	}
	return nil
}
