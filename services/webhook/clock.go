package webhook

import (
	"context"
	"sync"
	"time"
)

// clocks bound attempts. Those of one Run end together, so that one that was not
// late serves the next attempt too. The zero value is ready.
type clocks struct {
	mu   sync.Mutex
	idle []*clock
}

// idleClocks is how many wait for their next use at most.
const idleClocks = 64

// clock is a context that ends when it rings.
type clock struct {
	context.Context //nolint:containedctx // it is one
	cancel          context.CancelCauseFunc
	late            *time.Timer
}

// start returns a clock that rings after d, and ends with ctx.
func (c *clocks) start(ctx context.Context, d time.Duration) *clock {
	c.mu.Lock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		k := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if k.Err() == nil { // else it is of a Run that ended
			c.mu.Unlock()
			k.late.Reset(d)
			return k
		}
	}
	c.mu.Unlock()
	k := &clock{}
	k.Context, k.cancel = context.WithCancelCause(ctx)
	k.late = time.AfterFunc(d, func() { k.cancel(context.DeadlineExceeded) })
	return k
}

// stop ends an attempt.
func (c *clocks) stop(k *clock) {
	if k.late.Stop() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.idle) < idleClocks {
			c.idle = append(c.idle, k)
			return
		}
	}
	k.cancel(nil)
}

// close ends all that are idle.
func (c *clocks) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		k.cancel(nil)
	}
	c.idle = nil
}
