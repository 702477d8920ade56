package registry

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"flightline/streams"
)

// Follow is Run for the caches of these buckets alone; what the others hold is
// asked for each time it is needed. Names of other buckets do nothing.
func (r *Registry) Follow(ctx context.Context, buckets []string) error {
	caches := map[string]func(context.Context) error{
		streams.BucketEndpoints:    r.Endpoints.cache.run,
		streams.BucketKeys:         r.Keys.cache.run,
		streams.BucketWorkers:      r.Workers.cache.run,
		streams.BucketTokens:       r.Tokens.cache.run,
		streams.BucketDestinations: r.Destinations.cache.run,
		streams.BucketPods:         r.Pods.driven.cache.run,
		streams.BucketWorkerPods:   r.Pods.own.cache.run,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // also if there is nothing to follow
		<-ctx.Done()
		return nil
	})
	for name, run := range caches {
		if slices.Contains(buckets, name) {
			g.Go(func() error { return run(ctx) })
		}
	}
	return g.Wait()
}
