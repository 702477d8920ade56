package autoscaler

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
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
	minds    map[string]*mind
	keeper   *keeper
	kept     time.Time
	arrivals *queue.Arrivals
	known    background
}

// mind is what the leader remembers of an endpoint.
type mind struct {
	memory memory
	last   registry.Decision // the last one written
	loaded bool              // last is what the stream has
	states map[string]standing
	looked time.Time
	of     endpoint.Endpoint
	alive  int // workers, when it was looked at
	line   line
	handed handed
}

// standing is a worker's state, and since when.
type standing struct {
	state state
	since time.Time
}

// lead is one term.
func (s *Service) lead(ctx context.Context) error {
	l := &leader{Service: s, minds: map[string]*mind{}, keeper: newKeeper(s), arrivals: s.queue.Arrivals()}
	defer l.arrivals.Close()
	tick, again := time.NewTicker(s.cfg.Every), time.NewTimer(0)
	defer tick.Stop()
	defer again.Stop()
	hasty := map[string]int{} // how often they were looked at in haste
	l.turn(ctx, nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.turn(ctx, nil)
			continue
		case m := <-l.arrivals.Told():
			l.hear(m, hasty)
		case <-again.C:
		}
		if pause := l.hurry(ctx, hasty); pause > 0 {
			again.Reset(pause)
		}
	}
}

// turn looks at all endpoints that are due, or at some alone.
func (l *leader) turn(ctx context.Context, only map[string]int) {
	if err := l.round(ctx, only); err != nil && ctx.Err() == nil {
		l.keeper.forgetTimes() // who was silent could not be heard
		l.log.WarnContext(ctx, "fleets not looked at, all stays as it is", "err", err)
	}
}

func (l *leader) round(ctx context.Context, only map[string]int) error {
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
	for _, e := range v.endpoints {
		m := l.minds[e.ID]
		if m == nil {
			m = &mind{states: map[string]standing{}}
			l.minds[e.ID] = m
		}
		_, hasty := only[e.ID]
		if only != nil && !hasty || !hasty && external(e) && e.Version == m.of.Version && v.now.Sub(m.looked) < externalEvery {
			continue
		}
		m.looked, m.of, m.line.hasty = v.now, e, hasty
		g.Go(func() error {
			if err := l.scale(ctx, v, e, m); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "fleet not scaled, trying again", "endpoint", e.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // nobody returns an error
	if only == nil {
		l.tidy(ctx, v)
	}
	return nil
}

// tidy forgets endpoints that are gone, and looks at all pods now and then.
func (l *leader) tidy(ctx context.Context, v *view) {
	there := make(map[string]bool, len(v.endpoints))
	for _, e := range v.endpoints {
		there[e.ID] = true
	}
	for id := range l.minds {
		if there[id] {
			continue
		}
		l.arrivals.Forget(id)
		if err := l.registry.Scaling.Drop(ctx, id); err == nil {
			delete(l.minds, id)
		}
	}
	if v.now.Sub(l.kept) >= keepEvery {
		l.kept = v.now
		l.keeper.keep(ctx, v)
	}
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
	m.alive = out.wanted
	if !external(e) {
		m.alive = count(in.members, starting, idle, busy) + out.start
	}
	if err := l.note(ctx, v, e, m, in.sample, out); err != nil {
		return err
	}
	return l.apply(ctx, v, e, m, in, out)
}
