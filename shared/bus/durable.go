package bus

import (
	"context"
	"errors"
	"fmt"

	"flightline/shared/bus/barrier"
	"flightline/shared/retry"
)

// findBarrier learns whether writes have to wait at the barrier of another
// process. Once one was found it is relied upon for good: if nobody answers
// there any more, nothing is known to be on the disk.
func (c *Client) findBarrier(ctx context.Context) error {
	if c.knownBarrier() != nil {
		return nil
	}
	remote := barrier.NewRemote(c.nc, c.cfg.DurablePrefix)
	there, err := remote.Exists(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if there {
		c.rely(remote)
	}
	return nil
}

// knownBarrier is the barrier that writes wait at, nil without one and for a bound client:
// the server's name says of a barrier that is not served yet.
func (c *Client) knownBarrier() barrier.Func {
	if c.barrier.Load() == nil && c.cfg.DurablePrefix != "" && c.nc.ConnectedServerName() == barrier.ServerName {
		c.rely(barrier.NewRemote(c.nc, c.cfg.DurablePrefix))
	}
	if wait := c.barrier.Load(); wait != nil {
		return *wait
	}
	return nil
}

func (c *Client) rely(on *barrier.Remote) {
	wait := barrier.Func(on.Sync)
	c.barrier.CompareAndSwap(nil, &wait)
}

// lookForBarrier goes on looking: a server may come back with one.
func (c *Client) lookForBarrier(ctx context.Context) error {
	for c.knownBarrier() == nil && retry.Sleep(ctx, probeInterval) == nil {
		if err := c.findBarrier(ctx); err != nil && ctx.Err() == nil {
			c.log.DebugContext(ctx, "whether there is a barrier is unknown", "err", err)
		}
	}
	return nil
}

// Durable returns when what the server acknowledged for a stream until now is on
// the disk, for writes that did not go through Publish. Without a barrier the
// acknowledgement has said so already. It returns ErrUnavailable if that is not
// known; the write may be there all the same.
func (c *Client) Durable(ctx context.Context, stream string) error {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	return c.WaitDurable(ctx, stream, c.nc.ConnectedServerId())
}

// WaitDurable returns when what server acknowledged for the stream is on the disk.
// It returns ErrUnavailable if that is not known: also when it is another server by
// now, which may have been started after a power loss. Then the caller has to read
// the write again.
func (c *Client) WaitDurable(ctx context.Context, stream, server string) error {
	wait := c.knownBarrier()
	if wait == nil {
		return nil
	}
	err := wait(ctx, stream)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case c.nc.ConnectedServerId() != server:
		return fmt.Errorf("%w: the server of %s was restarted", ErrUnavailable, stream)
	}
	return nil
}
