package registry

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
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
	o := newOpener(js, log)
	endpoints := newEndpoints(ctx, o)
	r := &Registry{
		Endpoints:    endpoints,
		Keys:         newKeys(ctx, o),
		Workers:      newWorkers(ctx, o),
		Tokens:       newTokens(ctx, o),
		Instances:    &Instances{table: open[Instance](ctx, o, streams.BucketInstances), endpoints: endpoints.cache, log: o.log},
		Idempotency:  &Idempotency{table: open[Submission](ctx, o, streams.BucketIdempotency)},
		Destinations: newDestinations(ctx, o),
		Pods:         &Pods{driven: newPodBucket(ctx, o, streams.BucketPods), own: newWorkerPods(ctx, o), last: &lastKnownPods{}},
		Templates:    &Store[pod.Template]{table: open[pod.Template](ctx, o, streams.BucketTemplates)},
		Volumes:      &Store[pod.Volume]{table: open[pod.Volume](ctx, o, streams.BucketVolumes)},
		Scaling:      &Scaling{js: js, bus: bus.Bind(js.Conn()), leaders: open[Leader](ctx, o, streams.BucketLeaders)},
		GPUs:         &GPUs{machines: open[Inventory](ctx, o, streams.BucketMachines), claims: open[GPUClaims](ctx, o, streams.BucketGPUs)},
	}
	return r, o.err
}

// SetPodTTL sets how long the records of workers' pods, and the tokens of fleets'
// workers, count after their last write, in whole seconds; 7 days unless it is called.
// All programs of an installation must have the same. It is to be called before Run.
func (r *Registry) SetPodTTL(ttl time.Duration) {
	r.Tokens.table.ttl, r.Pods.driven.table.ttl, r.Pods.own.table.ttl = ttl, ttl, ttl
}

// caches are what keeps each cache up to date until ctx ends, by bucket.
func (r *Registry) caches() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		streams.BucketEndpoints:    r.Endpoints.cache.run,
		streams.BucketKeys:         r.Keys.cache.run,
		streams.BucketWorkers:      r.Workers.cache.run,
		streams.BucketTokens:       r.Tokens.cache.run,
		streams.BucketDestinations: r.Destinations.cache.run,
		streams.BucketPods:         r.Pods.driven.cache.run,
		streams.BucketWorkerPods:   r.Pods.own.cache.run,
	}
}

// Run keeps the caches up to date until ctx ends, and then returns nil.
func (r *Registry) Run(ctx context.Context) error {
	return r.Follow(ctx, slices.Collect(maps.Keys(r.caches())))
}

// Follow is Run for the caches of these buckets alone; what the others hold is
// asked for each time it is needed. Names of other buckets do nothing.
func (r *Registry) Follow(ctx context.Context, buckets []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // also if there is nothing to follow
		<-ctx.Done()
		return nil
	})
	for name, run := range r.caches() {
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
