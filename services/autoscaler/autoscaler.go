// Package autoscaler starts and stops the workers of endpoints, so that there
// are as many as the jobs need: it samples, decides and applies.
//
// Every instance runs an agent for each of its drivers, which makes the pods of
// its machine what their records say. One instance leads: it decides how many
// workers each endpoint has and writes their records, and it keeps the records
// of all pods true. What it has decided is counted from the records, never from
// memory, and the id of a new pod follows from what is there, so that two
// instances that both believe to lead start no worker twice.
//
// Reading order: sample.go (what is), members.go (the workers of a fleet), decide.go
// (how many workers there should be, a pure function), apply.go (the records), then
// agent.go, which makes the machine what the records say.
//
// Of the leader are also: leader.go (its rounds), jobcount.go (a queue, as far as it is
// known), orphans.go (jobs that no living worker names), rollout.go and canary.go (workers
// of another version), failing.go (starts held up while jobs or starts fail), budget.go (an
// endpoint that pauses itself), faults.go (workers that misbehave), arbiter_input.go and
// gpus.go (who gets GPUs, by package arbiter), quarantine.go and supervise.go (GPUs that
// fail), reconciler.go (records whose worker, machine or endpoint is gone) and steps.go
// (what workers did, in their logs).
//
// Of an agent are: phases.go (how far a start is), ended.go (pods that ended by themselves),
// drainer.go (pods that are ended), claims.go and inventory.go (the GPUs of the machine),
// models.go (its cache of models) and logs.go (what pods print). Both have a part in spec.go
// (what a worker is started from), sleep.go and sleep_gpus.go.
package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/services/autoscaler/driver"
	"flightline/shared/events"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

// Config is what may differ between installations. The zero value is good,
// besides GatewayURL.
type Config struct {
	// GatewayURL is where workers reach the gateway, as "http://host:port".
	GatewayURL string
	// Every is the pause between two looks at what needs none sooner: at the
	// fleets, the leader's, and at what runs, the agents'. 0 means 500 ms.
	Every time.Duration
	// DrainTime is how long a worker that is removed by request may go on with
	// its jobs. 0 means 30 s, less none.
	DrainTime time.Duration
	// Grace is how long a pod may take to end after it was asked to. 0 means 16 s: a
	// worker gives its jobs back after 10 s by default, and may take 5 s for that.
	Grace time.Duration
	// Closing is how long workers that end with this program may go on with
	// their jobs once it stops. 0 means 15 s, less none.
	Closing time.Duration
	// Startup is how long a worker may take until it is first heard of, unless its
	// pod.Spec.InitTimeout says. 0 means 7 min.
	Startup time.Duration
	// GPUs reads the GPUs of this machine in place of its drivers, again every few
	// seconds. nil means those that the machine says it has.
	GPUs func() ([]pod.GPU, error)
	// ModelCache is the folder of this machine whose folder hub has the cached models, in the
	// layout of Hugging Face's cache. An absolute path; it is made with the first pod that
	// uses it. "" means that pods get no cache.
	ModelCache string
	// Quarantine is how long the first quarantine of a GPU lasts; each further one is twice
	// as long, up to 1 h or this if it is more. 0 means 5 min.
	Quarantine time.Duration
	// Log gets what no answer reports. nil means silence.
	Log *slog.Logger
}

const (
	defaultInterval = 500 * time.Millisecond
	defaultDrain    = 30 * time.Second
	defaultGrace    = 16 * time.Second
	defaultClosing  = 15 * time.Second
	defaultStartup  = 7 * time.Minute
	// pingInterval is how often workers of the fleet ping, at the rarest.
	pingInterval = 2 * time.Second
)

// Deps are what the service stands on. Their Run methods are the caller's to run.
type Deps struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Events are the log by which jobs are seen to fail.
	Events *events.Log
	// Election decides which instance leads. nil means that this one does.
	Election *registry.Election
	// Drivers run pods here; none is fine.
	Drivers []driver.Driver
}

// Service is one autoscaler.
type Service struct {
	cfg      Config
	log      *slog.Logger
	queue    *queue.Queue
	registry *registry.Registry
	events   *events.Log
	election *registry.Election
	agents   []*agent
}

// New returns a service that is ready for Run. It starts nothing, and fails
// only if Queue, Registry or Events is missing.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.Queue == nil || deps.Registry == nil || deps.Events == nil {
		return nil, errors.New("autoscaler: a queue, a registry and a log of events are needed")
	}
	cfg.Every, cfg.DrainTime = cmp.Or(cfg.Every, defaultInterval), max(0, cmp.Or(cfg.DrainTime, defaultDrain))
	cfg.Grace, cfg.Startup = cmp.Or(cfg.Grace, defaultGrace), cmp.Or(cfg.Startup, defaultStartup)
	cfg.Quarantine = cmp.Or(cfg.Quarantine, defaultQuarantine)
	cfg.Closing = max(0, cmp.Or(cfg.Closing, defaultClosing))
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Service{cfg: cfg, log: cfg.Log, queue: deps.Queue, registry: deps.Registry, events: deps.Events, election: deps.Election}
	for _, d := range deps.Drivers {
		s.agents = append(s.agents, newAgent(s, d))
	}
	return s, nil
}

// Run runs the agents, and leads whenever this instance is elected, until ctx
// ends. It sits out outages of the bus and of the drivers; nothing is stopped
// while one lasts. Pods of drivers that end with this program are stopped then;
// their workers have Config.Closing to end their jobs, and give back the rest.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range s.agents {
		g.Go(func() error { return a.run(ctx) })
	}
	g.Go(func() error {
		if s.election == nil {
			return s.lead(ctx)
		}
		return s.election.Run(ctx, s.lead)
	})
	return g.Wait()
}
