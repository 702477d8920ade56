package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/services/autoscaler"
	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

const (
	// roleLeader is an autoscaler without drivers, roleHost one that does not
	// lead and whose workers are goroutines.
	roleLeader = "leader"
	roleHost   = "host"
	// opSent asks the leader how many messages it has sent so far.
	opSent = "sent"
	// hostWorks is how long a job takes, hostBeats the pause between two
	// heartbeats of a worker.
	hostWorks = 200 * time.Millisecond
	hostBeats = 2 * time.Second
)

func serveLeader(ctx context.Context, cfg config, w *wire) error {
	return runScaler(ctx, cfg, roleLeader, func(nc *nats.Conn) error {
		return w.ready(ready{}, func(o order) (sample, error) {
			if o.Op != opSent {
				return noOrders(o)
			}
			return sample{N: int(nc.Stats().OutMsgs)}, nil //nolint:gosec // it counts from 0
		})
	})
}

func serveHost(ctx context.Context, cfg config, w *wire) error {
	return runScaler(ctx, cfg, roleHost, func(*nats.Conn) error { return w.ready(ready{}, noOrders) })
}

// runScaler runs an autoscaler as `flightline serve` does. The leader is
// started first, and waits until it leads.
func runScaler(ctx context.Context, cfg config, name string, line func(*nats.Conn) error) error {
	in, err := newInsider(ctx, cfg, name, queue.Config{})
	if err != nil {
		return err
	}
	defer in.nc.Close()
	election, err := registry.NewElection(ctx, in.js, registry.RoleAutoscaler, name, nil)
	if err != nil {
		return err
	}
	deps := autoscaler.Deps{Queue: in.q, Registry: in.reg, Election: election}
	if name == roleHost {
		deps.Drivers = []driver.Driver{&crew{q: in.q, reg: in.reg, all: map[string]*hand{}}}
	}
	s, err := autoscaler.New(autoscaler.Config{}, deps)
	if err != nil {
		return err
	}
	follow := func(ctx context.Context) error { return in.reg.Follow(ctx, streams.Caches(streams.RoleAutoscaler)) }
	return together(ctx, func() error {
		if name == roleHost {
			return line(in.nc)
		}
		for {
			if _, err := election.Active(ctx); err == nil {
				return line(in.nc)
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}, in.q.Run, follow, s.Run)
}

// crew is a driver whose pods are goroutines of this process.
type crew struct {
	q   *queue.Queue
	reg *registry.Registry
	mu  sync.Mutex
	all map[string]*hand
}

type hand struct {
	endpoint string
	began    time.Time
	stop     context.CancelFunc
	done     chan struct{}
}

func (c *crew) Name() pod.Driver { return pod.Process }

func (c *crew) Machine(context.Context) (string, pod.Machine, error) {
	return roleHost, pod.Machine{Hostname: roleHost}, nil
}

func (c *crew) Start(ctx context.Context, s driver.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[s.PodID] != nil {
		return nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &hand{endpoint: s.Endpoint, began: time.Now(), stop: stop, done: make(chan struct{})}
	c.all[s.PodID] = h
	go func() {
		defer close(h.done)
		c.work(ctx, s)
	}()
	return nil
}

// work does the endpoint's jobs, one at a time.
func (c *crew) work(ctx context.Context, s driver.Start) {
	e, err := c.reg.Endpoints.Get(ctx, s.Endpoint)
	if err != nil {
		return
	}
	taker, err := c.q.Take(ctx, e, s.PodID, 1)
	if err != nil {
		return
	}
	defer taker.Close()
	w := registry.Worker{ID: s.PodID, Endpoint: s.Endpoint, Concurrency: 1, State: registry.WorkerIdle, Started: time.Now()}
	for ctx.Err() == nil {
		_ = c.reg.Workers.Beat(ctx, w)
		within, cancel := context.WithTimeout(ctx, hostBeats)
		lease, err := taker.Next(within)
		cancel()
		if err != nil {
			w.State, w.Running = registry.WorkerIdle, nil
			continue
		}
		w.State, w.Running = registry.WorkerRunning, []string{string(lease.Job.ID)}
		select {
		case <-time.After(hostWorks):
		case <-ctx.Done():
		}
		_, _ = lease.Complete(context.WithoutCancel(ctx), payload)
	}
}

func (c *crew) Stop(ctx context.Context, podID string, _ time.Duration) error {
	c.mu.Lock()
	h := c.all[podID]
	c.mu.Unlock()
	if h == nil {
		return nil
	}
	h.stop()
	select {
	case <-h.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, podID)
	return nil
}

func (c *crew) List(context.Context) ([]driver.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]driver.Instance, 0, len(c.all))
	for id, h := range c.all {
		list = append(list, driver.Instance{PodID: id, Endpoint: h.endpoint, Running: true, Started: h.began})
	}
	return list, nil
}

func (c *crew) Forget(context.Context, string) error { return nil }

// Close implements the end of a driver whose pods end with it.
func (c *crew) Close(ctx context.Context) error {
	list, err := c.List(ctx)
	for _, i := range list {
		err = errors.Join(err, c.Stop(ctx, i.PodID, 0))
	}
	if err != nil {
		return fmt.Errorf("end of the workers: %w", err)
	}
	return nil
}
