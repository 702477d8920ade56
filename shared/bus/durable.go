package bus

import (
	"context"
	"errors"
	"fmt"

	"flightline/shared/bus/barrier"
)

// knownBarrier is the barrier that writes wait at, nil without one and for a bound client:
// the server's name says of one, also before it is served. Once one is known it is relied
// upon for good: if no process answers there any more, nothing is known to be on the disk.
func (c *Client) knownBarrier() barrier.Func {
	if c.barrier.Load() == nil && c.cfg.DurablePrefix != "" && c.nc.ConnectedServerName() == barrier.ServerName {
		wait := barrier.Func(barrier.NewRemote(c.nc, c.cfg.DurablePrefix).Sync)
		c.barrier.CompareAndSwap(nil, &wait)
	}
	if wait := c.barrier.Load(); wait != nil {
		return *wait
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
