package autoscaler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/endpoint"
	"flightline/shared/placement"
	"flightline/shared/registry"
)

const (
	// gpuTextInterval is how often at most a decision is written because only its text
	// about GPUs is another one.
	gpuTextInterval = 5 * time.Second
	// maxNamedHolders bounds those that a text names.
	maxNamedHolders = 3
	// maxUnknown is how long an endpoint that cannot be looked at, as while its queue is
	// unreadable, asks for what it asked for before. GPUs stay free for it until then.
	maxUnknown = 30 * time.Second
)

// postponed is a decision about an endpoint whose workers need GPUs. It waits until the arbiter
// has given some, and stays then for what the endpoint still asks for.
type postponed struct {
	e   endpoint.Endpoint
	m   *endpointState
	in  fleetSample
	out decision
	// unmet is how many workers are still to be started: those of out, less those that got GPUs.
	unmet int
	// wakes are the workers to wake that must regain their GPUs first.
	wakes []string
	// fresh is true until it is settled.
	fresh bool
	// looked is when the endpoint was looked at for this decision.
	looked time.Time
}

// unknown reports whether no look at the endpoint has succeeded for maxUnknown: it asks for
// no GPU then, and its workers keep theirs.
func (s *postponed) unknown(now time.Time) bool { return now.Sub(s.looked) >= maxUnknown }

// postpone leaves a decision to the arbiter, and reports whether it needs to.
func (l *leader) postpone(e endpoint.Endpoint, m *endpointState, in fleetSample, out decision) bool {
	l.gpuMu.Lock()
	defer l.gpuMu.Unlock()
	if e.Fleet.External() || in.spec.GPUs == 0 {
		if in.unknown == "" {
			delete(l.gpus, e.ID)
		}
		return false
	}
	s := &postponed{e: e, m: m, in: in, out: out, unmet: out.start, fresh: true, looked: m.looked}
	s.splitWakes()
	l.gpus[e.ID] = s
	return true
}

// arbitrate gives the GPUs to those that ask for them, and settles what was postponed.
func (l *leader) arbitrate(ctx context.Context, v *view) {
	var fresh []*postponed
	for _, id := range slices.Sorted(maps.Keys(l.gpus)) {
		if s := l.gpus[id]; s.fresh {
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 0 {
		return
	}
	in, err := l.arbiterInput(ctx, v)
	if err != nil {
		if ctx.Err() == nil {
			l.log.WarnContext(ctx, "GPUs not looked at, their fleets stay as they are", "err", err)
		}
		return
	}
	d := arbiter.Decide(in)
	for _, s := range fresh {
		s.grant(in, d, v.now)
		s.yield(d, l.gpus)
		s.out = replace(s.e, s.in.sample, s.out, v.now)
		if err := l.settle(ctx, v, s.e, s.m, s.in, s.out); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "fleet not scaled, trying again", "endpoint", s.e.ID, "err", err)
		}
		s.fresh = false
	}
}

// grant makes the decision start and wake what was given, and says why if that is nothing.
func (s *postponed) grant(in arbiter.Input, d arbiter.Decision, now time.Time) {
	asked := s.out.start + len(s.wakes)
	woken := s.grantWakes(d)
	s.in.placed = nil
	for _, g := range d.Grants {
		if g.Endpoint == s.e.ID {
			s.in.placed = append(s.in.placed, g.Placement)
		}
	}
	s.out.start = min(s.out.start, len(s.in.placed))
	if asked > 0 && s.out.start+len(s.out.wake) == 0 {
		wait, replaced := d.Waits[s.e.ID], s.m.memory.replaced
		if !wait.Coming && countPresent(s.in.sample, replaced) == 0 {
			replaced = nil // what they left is gone, or another's
		}
		s.out.memory.grew, s.out.memory.replaced = s.m.memory.grew, slices.Concat(replaced, s.out.drain)
		if len(s.out.drain) == 0 {
			s.out.reason, s.out.text = registry.ScalingNoGPU, waitText(s, in, wait, now)
		}
	}
	s.unmet = max(0, asked-s.out.start-woken-len(s.wakes))
}

// yield makes the decision stop the workers that are to go, or put them to sleep.
func (s *postponed) yield(d arbiter.Decision, all map[string]*postponed) {
	asleep := 0
	for _, y := range d.Yields {
		if y.Endpoint != s.e.ID || slices.Contains(s.out.drain, y.Pod) || slices.Contains(s.out.sleep, y.Pod) {
			continue
		}
		if y.Sleep {
			s.out.sleep = append(s.out.sleep, y.Pod)
			asleep++
		} else {
			s.out.drain = append(s.out.drain, y.Pod)
		}
		sleeps := func(w member) bool { return w.id == y.Pod && w.state == sleeping }
		if !slices.ContainsFunc(s.in.members, sleeps) { // those are not among the wanted
			s.out.wanted = max(0, s.out.wanted-1)
			s.out.memory.wanted = s.out.wanted
		}
		s.out.reason, s.out.text = registry.ScalingYield, "its GPU goes to "+y.For
		if other := all[y.For]; other != nil {
			s.out.text += fmt.Sprintf(", where %s, the first for %s", jobsWait(other.in.queued), other.in.oldest.Round(time.Second))
		}
	}
	if asleep > 0 {
		s.out.text += fmt.Sprintf(", put to sleep: %d", asleep)
	}
}

// waitText says what was looked for, what there is, who holds it and until when.
func waitText(s *postponed, in arbiter.Input, w arbiter.Wait, now time.Time) string {
	r := requestOf(s.in)
	there, possible := placement.Refusal(r, in.Devices)
	text := fmt.Sprintf("a worker needs %s; %s", r, there)
	if n := count(s.in.members, sleeping); n > 0 && possible {
		text += fmt.Sprintf("; workers that sleep and wait for room on their GPUs: %d", n)
	}
	if !possible {
		return text
	}
	if w.Coming {
		return text + "; one is being freed for it"
	}
	for i, x := range w.By {
		if i == maxNamedHolders {
			text += fmt.Sprintf("; %d more hold others", len(w.By)-i)
			break
		}
		text += fmt.Sprintf("; %s is held by %s (%s)", strings.Join(x.Devices, ", "), x.Pod, holderText(x))
	}
	switch {
	case w.Until > 0:
		text += "; one is asked for at " + now.Add(w.Until).UTC().Truncate(time.Second).Format(time.TimeOnly) + " UTC, or when it is free before"
	case len(w.By) > 0:
		text += "; it starts when one is free"
	}
	return text
}

// holderText says whose worker it is, and what it does.
func holderText(w arbiter.Worker) string {
	of := "of no endpoint"
	if w.Endpoint != "" {
		of = "of " + w.Endpoint
	}
	return of + ", " + w.State.String()
}
