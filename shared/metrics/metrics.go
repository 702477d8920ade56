// Package metrics exposes the metrics of a process to Prometheus. Other packages call
// hooks that count, and do not know Prometheus. Gauges are read when Prometheus scrapes
// them (Fleet). A Registry is passed in; no package has a global one.
//
// No label has the id of a job, a path or an address. An endpoint that was
// deleted loses its series, and at most MaxEndpoints have some.
//
// A new metric: its name, labels and help text in names.go, which docs/metrics.md is
// generated from; then, for a counter or histogram, the hook that feeds it in metrics.go,
// or for a gauge of an endpoint what reads it in fleet.go.
package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"flightline/shared/deliveries"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

// MaxEndpoints is how many endpoints have series of their own; what happens at
// further ones is counted under otherEndpoints.
const MaxEndpoints = 1000

// otherEndpoints stands for the endpoints beyond the first MaxEndpoints. No
// endpoint can have this id.
const otherEndpoints = "(other)"

// Registry holds the metrics of one process. It is safe for concurrent use.
type Registry struct {
	all       *prometheus.Registry
	endpoints *admitted

	submitted, stale, finished, redeliveries, webhookDeliveries *prometheus.CounterVec
	delay, execution                                            *prometheus.HistogramVec
	unanswered                                                  prometheus.Counter
	http                                                        routes
}

// New returns a registry with the metrics of the process and of Go, and those
// of the connection.
func New(nc *nats.Conn) *Registry {
	r := &Registry{
		all: prometheus.NewRegistry(), endpoints: &admitted{ids: map[string]bool{}},
		submitted: counterVec(submitted), stale: counterVec(stale), finished: counterVec(finished), redeliveries: counterVec(redeliveries),
		webhookDeliveries: counterVec(webhookDeliveries), delay: histogramVec(delay, jobBuckets), execution: histogramVec(execution, jobBuckets),
		unanswered: counter(unanswered),
		http:       routes{count: counterVec(requests), took: histogramVec(requestSeconds, httpBuckets), of: map[route]answered{}},
	}
	r.all.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		r.submitted, r.stale, r.finished, r.redeliveries, r.webhookDeliveries, r.delay, r.execution, r.unanswered, r.http.count, r.http.took,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: reconnects.Name, Help: reconnects.Help}, func() float64 { return float64(nc.Stats().Reconnects) }),
		gaugeFunc(connected, func() float64 { return truth(nc.IsConnected()) }),
	)
	return r
}

// AddStorage adds how many streams refuse writes.
func (r *Registry) AddStorage(failed func() int) {
	r.all.MustRegister(gaugeFunc(refused, func() float64 { return float64(failed()) }))
}

// Buckets in seconds: a job waits and runs for milliseconds to an hour, a
// request is answered in half a millisecond or held for minutes.
var (
	jobBuckets  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	httpBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 90, 300}
)

func counter(n Name) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: n.Name, Help: n.Help})
}

func gaugeFunc(n Name, read func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: n.Name, Help: n.Help}, read)
}

func counterVec(n Name) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: n.Name, Help: n.Help}, n.Labels)
}

func histogramVec(n Name, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: n.Name, Help: n.Help, Buckets: buckets}, n.Labels)
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Observer counts what the queue of this process does.
func (r *Registry) Observer() queue.Observer {
	return queue.Observer{
		Submitted: func(endpoint string, mode job.Mode) {
			r.submitted.WithLabelValues(r.endpoints.label(endpoint), string(mode)).Inc()
		},
		Stale:      r.Stale,
		Unanswered: r.unanswered.Inc,
	}
}

// AddMissing exposes how many streams the queue of this process found missing.
func (r *Registry) AddMissing(missing func() []string) {
	r.all.MustRegister(gaugeFunc(missingStreams, func() float64 { return float64(len(missing())) }))
}

// Stale counts a result that was dropped because its worker did not hold the job.
func (r *Registry) Stale(endpoint string) { r.stale.WithLabelValues(r.endpoints.label(endpoint)).Inc() }

// Tried counts an attempt to deliver a webhook.
func (r *Registry) Tried(outcome deliveries.Outcome) {
	r.webhookDeliveries.WithLabelValues(string(outcome)).Inc()
}

// Counted counts an event of a job: pick-ups and ends.
func (r *Registry) Counted(e events.Event) {
	endpoint := r.endpoints.label(e.Endpoint)
	switch {
	case e.Kind == events.Started && e.Run > 1:
		r.redeliveries.WithLabelValues(endpoint).Inc()
	case e.Kind == events.Started && !e.Started.IsZero():
		r.delay.WithLabelValues(endpoint).Observe(max(0, e.Started.Sub(e.Queued).Seconds()))
	case e.Status.Terminal():
		r.finished.WithLabelValues(endpoint, string(e.Status)).Inc()
		if e.Status != job.Cancelled && !e.Started.IsZero() {
			r.execution.WithLabelValues(endpoint).Observe(max(0, e.Finished.Sub(e.Started).Seconds()))
		}
	}
}

// Answered counts an HTTP request. Both method and route must be of a small
// set, and live on.
func (r *Registry) Answered(method, path string, status int, took time.Duration) {
	if path == "/" {
		path = "none" // no route: a label that nobody takes for the path /
	}
	a := r.http.find(route{method, path, status})
	a.count.Inc()
	a.took.Observe(took.Seconds())
}

type route struct {
	method, path string
	status       int
}

type answered struct {
	count prometheus.Counter
	took  prometheus.Observer
}

// routes remembers the series of each route: to find them by their labels
// would format the status each time.
type routes struct {
	count *prometheus.CounterVec
	took  *prometheus.HistogramVec
	mu    sync.RWMutex
	of    map[route]answered
}

func (r *routes) find(of route) answered {
	r.mu.RLock()
	a, ok := r.of[of]
	r.mu.RUnlock()
	if ok {
		return a
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	code := strconv.Itoa(of.status)
	a = answered{r.count.WithLabelValues(of.path, of.method, code), r.took.WithLabelValues(of.path, of.method, code)}
	r.of[of] = a
	return a
}
