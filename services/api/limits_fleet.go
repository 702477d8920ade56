package api

import (
	"context"
	"errors"
	"maps"
	"time"

	"flightline/shared/limit"
	"flightline/shared/registry"
)

// fleet is who shares the limits, and who raises them: nobody but us until more
// is known.
type fleet struct {
	instances int
	workers   map[string]int // that are up, idle or busy, by endpoint
}

func (f *fleet) equal(other *fleet) bool {
	return f.instances == other.instances && maps.Equal(f.workers, other.workers)
}

// run keeps the fleet up to date and sweeps, until ctx ends. When the registry
// cannot be read, what was known holds.
func (l *limits) run(ctx context.Context) error {
	var peak limit.Peak
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for ctx.Err() == nil {
		f, err := l.look(ctx, &peak)
		switch {
		case err == nil && !f.equal(l.fleet.Load()):
			l.fleet.Store(f) // gates see that it is another one
		case err != nil && ctx.Err() == nil:
			l.log.DebugContext(ctx, "limits go by an old view of the fleet", "err", err)
		}
		for _, o := range l.operations {
			o.sweep(l.clock())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (l *limits) look(ctx context.Context, peak *limit.Peak) (*fleet, error) {
	instances, err := l.registry.Instances.List(ctx)
	workers, werr := l.registry.Workers.List(ctx, "")
	if err = errors.Join(err, werr); err != nil {
		return nil, err
	}
	f := &fleet{workers: map[string]int{}}
	servers := 1 // we may not be in the list yet
	for _, x := range instances {
		if x.Role == instanceRole && x.ID != l.instance {
			servers++
		}
	}
	f.instances = peak.Look(servers)
	for i := range workers {
		if s := workers[i].State; s == registry.WorkerRunning || s == registry.WorkerIdle {
			f.workers[workers[i].Endpoint]++
		}
	}
	return f, nil
}
