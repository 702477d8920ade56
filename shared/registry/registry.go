package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/pod"
	"flightline/streams"
)

// Registry is all that exists. It works without Run, then every read goes to
// the bus.
type Registry struct {
	Endpoints *Endpoints
	Keys      *Keys
	Workers   *Workers
	Instances *Instances
	// Tokens let workers in that speak HTTP.
	Tokens *Tokens
	// Idempotency remembers which requests were repeated.
	Idempotency *Idempotency
	// Destinations are receivers of webhooks that keep failing or are paused.
	Destinations *Destinations
	// Pods, Templates and Volumes are what workers run in, and from.
	Pods      *Pods
	Templates *Things[pod.Template]
	Volumes   *Things[pod.Volume]
	// Scaling is what the autoscaler decided.
	Scaling *Scaling
}

// New binds to the buckets that streams.Apply made. It starts nothing. A nil
// log is silence.
func New(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*Registry, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	endpoints, err := newEndpoints(ctx, js, log)
	if err != nil {
		return nil, err
	}
	keys, err := newKeys(ctx, js, log)
	if err != nil {
		return nil, err
	}
	workers, err := newWorkers(ctx, js, log)
	if err != nil {
		return nil, err
	}
	tokens, err := newTokens(ctx, js, log)
	if err != nil {
		return nil, err
	}
	instances, err := OpenTable[Instance](ctx, js, streams.BucketInstances)
	if err != nil {
		return nil, err
	}
	submissions, err := OpenTable[Submission](ctx, js, streams.BucketIdempotency)
	if err != nil {
		return nil, err
	}
	destinations, err := newDestinations(ctx, js, log)
	if err != nil {
		return nil, err
	}
	pods, err := newPods(ctx, js, log)
	if err != nil {
		return nil, err
	}
	templates, volumes, err := newThings(ctx, js)
	if err != nil {
		return nil, err
	}
	scaling, err := newScaling(ctx, js)
	if err != nil {
		return nil, err
	}
	return &Registry{
		Endpoints:   endpoints,
		Keys:        keys,
		Workers:     workers,
		Tokens:      tokens,
		Instances:   &Instances{table: instances, endpoints: endpoints.cache, log: log},
		Idempotency: &Idempotency{table: submissions},

		Destinations: destinations,

		Pods:      pods,
		Templates: templates,
		Volumes:   volumes,
		Scaling:   scaling,
	}, nil
}

// newThings opens what pods are made from.
func newThings(ctx context.Context, js jetstream.JetStream) (*Things[pod.Template], *Things[pod.Volume], error) {
	templates, err := OpenTable[pod.Template](ctx, js, streams.BucketTemplates)
	if err != nil {
		return nil, nil, err
	}
	volumes, err := OpenTable[pod.Volume](ctx, js, streams.BucketVolumes)
	return &Things[pod.Template]{table: templates}, &Things[pod.Volume]{table: volumes}, err
}

// SetPodTTL sets how long the records of workers' pods, and the tokens of fleets'
// workers, count after their last write, in whole seconds; 7 days unless it is called.
// All programs of an installation must have the same. It is to be called before Run.
func (r *Registry) SetPodTTL(ttl time.Duration) {
	r.Tokens.table.ttl, r.Pods.driven.table.ttl, r.Pods.own.table.ttl = ttl, ttl, ttl
}

// Run keeps the caches up to date until ctx ends, and then returns nil.
func (r *Registry) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Endpoints.cache.run(ctx) })
	g.Go(func() error { return r.Keys.cache.run(ctx) })
	g.Go(func() error { return r.Workers.cache.run(ctx) })
	g.Go(func() error { return r.Tokens.cache.run(ctx) })
	g.Go(func() error { return r.Destinations.cache.run(ctx) })
	g.Go(func() error { return r.Pods.driven.cache.run(ctx) })
	g.Go(func() error { return r.Pods.own.cache.run(ctx) })
	return g.Wait()
}
