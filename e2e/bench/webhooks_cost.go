package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"flightline/streams"
)

// waiting returns when so many completions are in the queue; with none, all
// deliveries are logged.
func (s *site) waiting(ctx context.Context, n int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		stream, err := s.js.Stream(ctx, streams.Webhooks)
		if err != nil || stream.CachedInfo().State.Msgs == uint64(n) { //nolint:gosec // n is small
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d completions are not %d: %w", stream.CachedInfo().State.Msgs, n, ctx.Err())
		}
	}
}

// webhookCPU is the CPU time so far of the server, the service, and this
// process, which is the receiver.
func (s *site) webhookCPU() [3]time.Duration {
	return [3]time.Duration{cpuTime(s.child(roleServer).pid), cpuTime(s.child(roleWebhook).pid), cpuTime(os.Getpid())}
}

// webhookCost is what a delivery cost since then: a ratio of it holds on a
// machine that is not quiet.
func (r *round) webhookCost(before [3]time.Duration) (cost reading) {
	sum := 0.0
	for i, now := range r.webhookCPU() {
		per := float64((now - before[i]).Microseconds()) / float64(r.load)
		cost = cost.with("cpu "+[]string{"server", "service", "receiver"}[i], microseconds, per)
		sum += per
	}
	return cost.with("cpu in all", microseconds, sum)
}

const microseconds = "µs each"

// child is the process in that role.
func (s *site) child(role string) *child {
	for _, c := range s.children {
		if c.role == role {
			return c
		}
	}
	return nil
}
