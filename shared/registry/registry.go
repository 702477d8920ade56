package registry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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
	Templates *Store[pod.Template]
	Volumes   *Store[pod.Volume]
	// Scaling is what the autoscaler decided.
	Scaling *Scaling
	// GPUs are the accelerators of all machines, and who holds them.
	GPUs *GPUs
}

// New binds to the buckets that streams.Apply made. It starts nothing. A nil
// log is silence.
func New(ctx context.Context, js jetstream.JetStream, log *slog.Logger) (*Registry, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
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
	templates, volumes, err := newStores(ctx, js)
	if err != nil {
		return nil, err
	}
	scaling, gpus, err := newFleets(ctx, js)
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
		GPUs:      gpus,
	}, nil
}

// newStores opens what pods are made from.
func newStores(ctx context.Context, js jetstream.JetStream) (*Store[pod.Template], *Store[pod.Volume], error) {
	templates, err := OpenTable[pod.Template](ctx, js, streams.BucketTemplates)
	if err != nil {
		return nil, nil, err
	}
	volumes, err := OpenTable[pod.Volume](ctx, js, streams.BucketVolumes)
	return &Store[pod.Template]{table: templates}, &Store[pod.Volume]{table: volumes}, err
}

// newFleets opens what autoscalers decide and claim.
func newFleets(ctx context.Context, js jetstream.JetStream) (*Scaling, *GPUs, error) {
	scaling, err := newScaling(ctx, js)
	if err != nil {
		return nil, nil, err
	}
	gpus, err := newGPUs(ctx, js)
	return scaling, gpus, err
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

// installationKey is where the id stands, beside what else is never forgotten.
const installationKey = "installation"

// Installation returns the id of the Flightline that this bus is, made when
// somebody first asks and the same ever after, for all processes: "fl-" and 12
// hexadecimal digits. It distinguishes what one Flightline runs on a machine from what
// another runs there. It returns bus.ErrUnavailable.
func Installation(ctx context.Context, js jetstream.JetStream) (string, error) {
	table, err := OpenTable[string](ctx, js, streams.BucketPositions)
	if err != nil {
		return "", err
	}
	id, _, err := table.Get(ctx, installationKey)
	if !errors.Is(err, ErrNotFound) {
		return id, err
	}
	made := "fl-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	_, err = table.Create(ctx, installationKey, made)
	if errors.Is(err, ErrExists) { // somebody else was faster
		made, _, err = table.Get(ctx, installationKey)
	}
	return made, err
}
