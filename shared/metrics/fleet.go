package metrics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
)

const (
	// fleetAge bounds the age of the gauges of endpoints, fleetTimeout how
	// long reading it may take: Prometheus waits 10 s.
	fleetAge     = time.Second
	fleetTimeout = 5 * time.Second
	// maxConcurrentReads bounds the endpoints that are read side by side.
	maxConcurrentReads = 8
)

// Fleet reads how the endpoints stand, when somebody asks. What cannot be read
// is left out, so that no old number is taken for a new one.
type Fleet struct {
	Queue    *queue.Queue
	Registry *registry.Registry
	// Log gets what could not be read. nil means silence.
	Log *slog.Logger
}

// AddFleet adds the gauges of all endpoints.
func (r *Registry) AddFleet(f Fleet) {
	f.Log = cmp.Or(f.Log, slog.New(slog.DiscardHandler))
	failed := counter(unread)
	r.all.MustRegister(failed, &fleet{Fleet: f, failed: failed, retain: r.Retain})
}

// AddEndpoints has what is counted for endpoints that are gone forgotten at each scrape, as a
// Fleet does, where the process has none. known lists the endpoints that there are.
func (r *Registry) AddEndpoints(known func(context.Context) ([]endpoint.Endpoint, error)) {
	r.all.MustRegister(collect(func(chan<- prometheus.Metric) {
		ctx, cancel := context.WithTimeout(context.Background(), fleetTimeout)
		defer cancel()
		if endpoints, err := known(ctx); err == nil {
			r.Retain(idsOf(endpoints))
		}
	}))
}

// AddLag adds how far the recorder is behind. read returns the age of what is
// not recorded, and writes; false where it stands by, or that is not known.
func (r *Registry) AddLag(read func(context.Context) (age time.Duration, writes uint64, known bool)) {
	r.all.MustRegister(collect(func(out chan<- prometheus.Metric) {
		ctx, cancel := context.WithTimeout(context.Background(), fleetTimeout)
		defer cancel()
		if age, writes, known := read(ctx); known {
			out <- gauge(lag, age.Seconds())
			out <- gauge(behind, float64(writes))
		}
	}))
}

// collect is a prometheus.Collector of one function.
type collect func(chan<- prometheus.Metric)

func (collect) Describe(chan<- *prometheus.Desc) {}

func (c collect) Collect(out chan<- prometheus.Metric) { c(out) }

type fleet struct {
	Fleet
	failed prometheus.Counter
	retain func(alive map[string]bool)

	mu   sync.Mutex
	at   time.Time
	last []prometheus.Metric
}

// Describe says nothing: the labels are not known beforehand.
func (f *fleet) Describe(chan<- *prometheus.Desc) {}

// Collect sends the gauges, which were read at most fleetAge ago.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) >= fleetAge {
		ctx, cancel := context.WithTimeout(context.Background(), fleetTimeout)
		f.last = f.read(ctx)
		cancel()
		f.at = time.Now()
	}
	for _, m := range f.last {
		out <- m
	}
}

func (f *fleet) read(ctx context.Context) []prometheus.Metric {
	endpoints, err := f.Registry.Endpoints.List(ctx)
	if err != nil {
		f.failed.Inc()
		f.Log.WarnContext(ctx, "endpoints not read for metrics", "err", err)
		return nil
	}
	f.retain(idsOf(endpoints))
	shown := endpoints[:min(len(endpoints), MaxEndpoints)]
	parts := make([][]prometheus.Metric, len(shown))
	var g errgroup.Group
	g.SetLimit(maxConcurrentReads)
	for i, e := range shown {
		g.Go(func() error {
			var err error
			if parts[i], err = f.endpoint(ctx, e); err != nil {
				f.failed.Inc()
				f.Log.WarnContext(ctx, "endpoint not read for metrics", "endpoint", e.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // each has told its own
	all := []prometheus.Metric{gauge(leftOut, float64(len(endpoints)-len(shown)))}
	for _, part := range parts {
		all = append(all, part...)
	}
	cards, err := f.quarantined(ctx)
	if err != nil {
		f.failed.Inc()
		f.Log.WarnContext(ctx, "GPUs not read for metrics", "err", err)
	}
	return append(all, cards...)
}

func idsOf(endpoints []endpoint.Endpoint) map[string]bool {
	ids := make(map[string]bool, len(endpoints))
	for _, e := range endpoints {
		ids[e.ID] = true
	}
	return ids
}

// quarantined counts the GPUs that are quarantined or on probation.
func (f *fleet) quarantined(ctx context.Context) ([]prometheus.Metric, error) {
	claims, err := f.Registry.GPUs.Claims(ctx)
	if err != nil {
		return nil, err
	}
	now := f.Queue.Now()
	var held, tried float64
	for _, c := range claims {
		held += truth(c.Quarantine.Holds(now))
		tried += truth(c.Quarantine.Probation(now))
	}
	return []prometheus.Metric{gauge(quarantined, held, "quarantined"), gauge(quarantined, tried, "probation")}, nil
}

// endpoint reads one endpoint, as far as it can.
func (f *fleet) endpoint(ctx context.Context, e endpoint.Endpoint) ([]prometheus.Metric, error) {
	now := f.Queue.Now()
	list := []prometheus.Metric{gauge(paused, truth(e.Paused(now)), e.ID)}
	counts, err := f.Registry.Workers.Counts(ctx, e.ID)
	if err != nil {
		return list, err
	}
	for _, state := range workerStates() {
		list = append(list, gauge(workers, float64(counts.States[state]), e.ID, state))
	}
	stats, err := f.Queue.Counts.ByStatus(ctx, e, counts.Jobs)
	if err != nil {
		return list, err
	}
	list = append(
		list,
		gauge(depth, float64(stats.Queued-stats.QueuedLow), e.ID, "normal"),
		gauge(depth, float64(stats.QueuedLow), e.ID, "low"),
		gauge(running, float64(stats.Running), e.ID),
		gauge(lost, float64(f.Registry.Workers.CountLost(stats.Held, now)), e.ID),
	)
	wait, err := f.Queue.Counts.OldestWait(ctx, e, job.Normal)
	if err != nil {
		return list, err
	}
	list = append(list, gauge(oldest, wait.Seconds(), e.ID))
	d, err := f.Registry.Scaling.Last(ctx, e.ID)
	if errors.Is(err, registry.ErrNotFound) {
		return list, nil
	}
	if err != nil {
		return list, err
	}
	return append(list, gauge(wanted, float64(d.Wanted), e.ID)), nil
}

func gauge(n Name, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(prometheus.NewDesc(n.Name, n.Help, n.Labels, nil), prometheus.GaugeValue, v, labels...)
}

// workerStates are all states that a worker may be in: each has a number, 0 too.
func workerStates() []string {
	return []string{
		registry.WorkerInitializing, registry.WorkerIdle, registry.WorkerRunning, registry.WorkerThrottled, registry.WorkerUnhealthy,
		registry.WorkerSleeping,
	}
}
