package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/streams"
)

// BeatEvery is the pause between two heartbeats of a worker or an instance;
// three missed ones and it is gone.
const BeatEvery = 5 * time.Second

// BeatAgainAfter is the pause after a heartbeat that could not be written.
const BeatAgainAfter = time.Second

// lastKept is how long memory keeps the last heartbeat of a worker that is gone.
const lastKept = time.Hour

// States of a worker, as /health counts them.
const (
	WorkerInitializing = "initializing"
	WorkerIdle         = "idle"
	WorkerRunning      = "running"
	WorkerThrottled    = "throttled"
	WorkerUnhealthy    = "unhealthy"
	// WorkerSleeping workers take no jobs until they are woken.
	WorkerSleeping = "sleeping"
)

// Worker is what a worker says of itself with each heartbeat.
type Worker struct {
	// ID matches [A-Za-z0-9_-]{1,128}; it is the id of the worker's pod.
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	// State is one of the Worker… constants.
	State string `json:"state"`
	// Concurrency is how many jobs it takes at once.
	Concurrency int `json:"concurrency"`
	// Running are the ids of the jobs it holds.
	Running []string `json:"running,omitempty"`
	// Stale are the ids of jobs that it says it runs and does not hold: it lost them, or
	// they ended.
	Stale []string `json:"stale,omitempty"`
	// Rested is how long ago it took or ended its last job, while it holds none.
	// 0 means that the sender of its heartbeats does not know.
	Rested time.Duration `json:"rested,omitempty"`
	// Native workers speak NATS, and read in their pod's record that they are to
	// drain; Draining ones have, take no more jobs, and leave once they hold none.
	Native   bool `json:"native,omitempty"`
	Draining bool `json:"draining,omitempty"`
	// Sleeps means that it can be put to sleep.
	Sleeps  bool      `json:"sleeps,omitempty"`
	Started time.Time `json:"started"`
	// Seen is the server's time of the heartbeat; Beat ignores it.
	Seen time.Time `json:"seen,omitzero"`
	Host Host      `json:"host"`
}

// Host is the machine a worker runs on, as far as it could find out. The record of its pod
// has more of it.
type Host struct {
	Name string `json:"name,omitempty"`
	// OS and Arch are spelled as Go spells them.
	OS   string `json:"os,omitempty"`
	Arch string `json:"arch,omitempty"`
	// CPUs counts logical ones.
	CPUs int `json:"cpus,omitempty"`
	// Version is that of the worker's program.
	Version string `json:"version,omitempty"`
}

// workerKey is where what a worker of an endpoint says stands, and its token and its pod.
func workerKey(endpointID, id string) string { return endpointID + "." + id }

// Workers are the workers that send heartbeats, by endpoint and id.
type Workers struct {
	table *Table[Worker]
	cache *cache[Worker]
	ttl   time.Duration // of a heartbeat
}

func newWorkers(ctx context.Context, o *opener) *Workers {
	t := open[Worker](ctx, o, streams.BucketWorkers)
	t.skipsUnreadable = true // workers write it
	w := &Workers{table: t, cache: newCache(t, o.log)}
	w.cache.expired = func(e entry[Worker]) bool { return time.Since(e.received) > lastKept }
	if o.err != nil {
		return w
	}
	status, err := t.kv.Status(ctx)
	if err != nil {
		o.err = explain(ctx, "look at bucket "+t.bucket, err)
		return w
	}
	w.ttl = status.TTL()
	return w
}

// Beat says that the worker lives and what it does. It counts as gone 15 s
// after its last beat. It returns an ErrInvalid for ids that cannot be.
func (w *Workers) Beat(ctx context.Context, worker Worker) error {
	if !endpoint.ValidID(worker.Endpoint) || !pod.ValidID(worker.ID) {
		return fmt.Errorf("%w: worker %q of endpoint %q", ErrInvalid, worker.ID, worker.Endpoint)
	}
	return w.table.Put(ctx, workerKey(worker.Endpoint, worker.ID), worker)
}

// BeatForStarting is Beat for a worker that starts, unless it has spoken itself.
func (w *Workers) BeatForStarting(ctx context.Context, worker Worker) error {
	worker.State = WorkerInitializing
	_, err := w.table.change(ctx, workerKey(worker.Endpoint, worker.ID), func(old Worker, found bool) (Worker, error) {
		if found && old.State != WorkerInitializing {
			return old, errUnchanged
		}
		return worker, nil
	})
	return ignoreUnchanged(err)
}

// Remove says that the worker left in order.
func (w *Workers) Remove(ctx context.Context, endpointID, id string) error {
	return w.table.Delete(ctx, workerKey(endpointID, id))
}

// WorkerCounts counts the living workers of an endpoint.
type WorkerCounts struct {
	// States has the workers by state; a state that none is in is not there.
	States map[string]int
	// Jobs is how many jobs they hold, as their last heartbeats say.
	Jobs int
}

// Counts counts the workers of the endpoint.
func (w *Workers) Counts(ctx context.Context, endpointID string) (WorkerCounts, error) {
	workers, err := w.List(ctx, endpointID)
	return CountWorkers(workers), err
}

// CountWorkers counts these workers, and a job that two of them hold once.
func CountWorkers(workers []Worker) WorkerCounts {
	c, jobs := WorkerCounts{States: map[string]int{}}, map[string]bool{}
	for _, w := range workers {
		c.States[w.State]++
		for _, id := range w.Running {
			jobs[id] = true
		}
	}
	c.Jobs = len(jobs)
	return c
}

// List returns the workers of an endpoint, or with "" of all, by endpoint and id.
func (w *Workers) List(ctx context.Context, endpointID string) ([]Worker, error) {
	prefix, filter := "", jetstream.AllKeys
	if endpointID != "" {
		if !endpoint.ValidID(endpointID) {
			return nil, endpoint.ErrNotFound
		}
		prefix, filter = endpointID+".", endpointID+".*"
	}
	now := time.Now()
	entries, err := w.cache.list(ctx, filter, func(e entry[Worker]) bool {
		// A heartbeat that expires is not announced.
		return strings.HasPrefix(e.key, prefix) && now.Sub(e.received) < w.ttl
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b entry[Worker]) int { return strings.Compare(a.key, b.key) })
	workers := make([]Worker, 0, len(entries))
	for _, e := range entries {
		e.value.Seen = e.written
		workers = append(workers, e.value)
	}
	return workers, nil
}
