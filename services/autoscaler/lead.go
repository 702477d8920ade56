package autoscaler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// lookAtOnce bounds how many endpoints are looked at side by side.
	lookAtOnce = 8
	// externalEvery is the pause between two looks at an endpoint whose workers
	// somebody else starts.
	externalEvery = 5 * time.Second
	// keepEvery is the pause between two looks at all pods.
	keepEvery = 2 * time.Second
	// repeatAfter is how long a decision stands unchanged before it is written again.
	repeatAfter = 24 * time.Hour
)

// leader is one term as the active instance. Nothing of it is needed by the
// next: what it forgets costs time only.
type leader struct {
	*Service
	minds  map[string]*mind
	keeper *keeper
	kept   time.Time
}

// mind is what the leader remembers of an endpoint.
type mind struct {
	memory memory
	last   registry.Decision // the last one written
	loaded bool              // last is what the stream has
	states map[string]standing
	looked time.Time
	of     endpoint.Endpoint
}

// standing is a worker's state, and since when.
type standing struct {
	state state
	since time.Time
}

// view is everything that is the same for all endpoints at one look.
type view struct {
	now       time.Time
	endpoints []endpoint.Endpoint
	pods      []pod.Pod
	workers   map[string]registry.Worker // by id of endpoint and pod
	machines  map[pod.Driver][]string
}

func (v *view) worker(p pod.Pod) (registry.Worker, bool) {
	w, ok := v.workers[p.Endpoint+"."+p.ID]
	return w, ok
}

// unwell reports whether a worker of a fleet says that it is unhealthy.
func (v *view) unwell() bool {
	return slices.ContainsFunc(v.pods, func(p pod.Pod) bool {
		w, _ := v.worker(p)
		return p.Status == pod.Running && fleet(p) && w.State == registry.WorkerUnhealthy
	})
}

// podsOf returns the pods of an endpoint's fleet.
func (v *view) podsOf(endpointID string) []pod.Pod {
	return slices.DeleteFunc(slices.Clone(v.pods), func(p pod.Pod) bool { return p.Endpoint != endpointID || !fleet(p) })
}

// fleet reports whether autoscalers start and stop the pod as a worker.
func fleet(p pod.Pod) bool { return p.Endpoint != "" && p.Driver != "" && p.Driver != pod.External }

// lead is one term.
func (s *Service) lead(ctx context.Context) error {
	l := &leader{Service: s, minds: map[string]*mind{}, keeper: newKeeper(s)}
	each(ctx, s.cfg.Every, nil, func() {
		if err := l.round(ctx); err != nil && ctx.Err() == nil {
			l.keeper.forgetTimes() // who was silent could not be heard
			s.log.WarnContext(ctx, "fleets not looked at, all stays as it is", "err", err)
		}
	})
	return nil
}

// round looks at all endpoints that are due.
func (l *leader) round(ctx context.Context) error {
	v, err := l.look(ctx)
	if err != nil {
		return err
	}
	if v.unwell() { // they must be counted as failed before others are started
		l.kept = v.now
		l.keeper.keep(ctx, v)
		if v, err = l.look(ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(lookAtOnce)
	there := map[string]bool{}
	for _, e := range v.endpoints {
		there[e.ID] = true
		m := l.minds[e.ID]
		if m == nil {
			m = &mind{states: map[string]standing{}}
			l.minds[e.ID] = m
		}
		if external(e) && e.Version == m.of.Version && v.now.Sub(m.looked) < externalEvery {
			continue
		}
		m.looked, m.of = v.now, e
		g.Go(func() error {
			if err := l.scale(ctx, v, e, m); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "fleet not scaled, trying again", "endpoint", e.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // nobody returns an error
	for id := range l.minds {
		if there[id] {
			continue
		}
		if err := l.registry.Scaling.Drop(ctx, id); err == nil {
			delete(l.minds, id)
		}
	}
	if v.now.Sub(l.kept) >= keepEvery {
		l.kept = v.now
		l.keeper.keep(ctx, v)
	}
	return nil
}

// look reads what is the same for all endpoints.
func (l *leader) look(ctx context.Context) (*view, error) {
	v := &view{now: l.queue.Now(), workers: map[string]registry.Worker{}, machines: map[pod.Driver][]string{}}
	var workers []registry.Worker
	var instances []registry.Instance
	var errs [4]error
	v.endpoints, errs[0] = l.registry.Endpoints.List(ctx)
	v.pods, errs[1] = l.registry.Pods.List(ctx)
	workers, errs[2] = l.registry.Workers.List(ctx, "")
	instances, errs[3] = l.registry.Instances.List(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, w := range workers {
		v.workers[w.Endpoint+"."+w.ID] = w
	}
	for _, i := range instances {
		if name, ok := strings.CutPrefix(i.Role, instanceRole); ok {
			v.machines[pod.Driver(name)] = append(v.machines[pod.Driver(name)], i.ID)
		}
	}
	return v, nil
}

// scale samples, decides and applies.
func (l *leader) scale(ctx context.Context, v *view, e endpoint.Endpoint, m *mind) error {
	if !m.loaded {
		last, err := l.registry.Scaling.Last(ctx, e.ID)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		m.last, m.memory.wanted, m.loaded = last, last.Wanted, true
	}
	in := l.sample(ctx, v, e, m)
	out := decide(e, in.sample, m.memory, v.now)
	m.memory = out.memory
	if err := l.note(ctx, v, e, m, in.sample, out); err != nil {
		return err
	}
	return l.apply(ctx, v, e, m, in, out)
}
