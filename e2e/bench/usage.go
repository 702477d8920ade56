package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"flightline/streams"
)

// drained waits until the endpoint's queue is empty: every job is finished and
// its message acknowledged.
func (l link) drained(ctx context.Context, endpointID string) error {
	stream, err := l.js.Stream(ctx, streams.Jobs(endpointID))
	if err != nil {
		return err
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d jobs of %s are left: %w", info.State.Msgs, endpointID, ctx.Err())
		}
	}
}

// empty throws away what waits on an endpoint without a worker.
func (l link) empty(ctx context.Context, endpointID string) error {
	stream, err := l.js.Stream(ctx, streams.Jobs(endpointID))
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// usage is the CPU time so far of the processes that take part, by what they
// are for; the client is this process.
func (s *site) usage(bare bool) map[string]time.Duration {
	parts := map[string][]string{"server": {roleServer}, "api": {roleAPI, roleEmbedded}, "worker": {roleWorker}, roleRecorder: {roleRecorder}}
	if bare {
		parts = map[string][]string{"server": {roleBareServer}, "api": {rolePublisher, roleBareEmbedded}, "worker": {roleConsumer}}
	}
	used := make(map[string]time.Duration)
	for part, names := range parts {
		for _, c := range s.children {
			if slices.Contains(names, c.role) {
				used[part] += cpuTime(c.pid)
			}
		}
	}
	used["client"] = cpuTime(os.Getpid())
	return used
}
