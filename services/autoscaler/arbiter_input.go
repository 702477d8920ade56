package autoscaler

import (
	"context"
	"maps"
	"slices"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// arbiterInput reads what machines have and pods hold.
func (l *leader) arbiterInput(ctx context.Context, v *view) (arbiter.Input, error) {
	machines, err := l.registry.GPUs.Machines(ctx)
	if err != nil {
		return arbiter.Input{}, err
	}
	claims := v.claims
	if claims == nil { // of an endpoint that is new to the view
		if claims, err = l.registry.GPUs.Claims(ctx); err != nil {
			return arbiter.Input{}, err
		}
	}
	in := arbiter.Input{Load: v.load(), Workers: l.holders(v, claims)}
	used := map[string]int{}
	for _, w := range in.Workers {
		for _, uuid := range w.Devices {
			used[uuid] += w.Share
		}
	}
	for _, m := range machines {
		if !slices.Contains(v.machines[m.Driver], m.ID) {
			continue // it is leaving
		}
		for _, g := range m.GPUs {
			d := placement.Device{GPU: g, Machine: m.ID, Driver: m.Driver, Models: m.Models, Used: used[g.UUID]}
			in.Devices = append(in.Devices, quarantinedDevice(d, claims[g.UUID].Quarantine, v.now))
		}
	}
	for _, s := range l.gpus {
		if d := s.demand(v, in.Workers); d.Workers > 0 && !s.unknown(v.now) {
			in.Demands = append(in.Demands, d)
		}
	}
	return in, nil
}

// demand is what the endpoint asks for. Unless it was looked at in this round, that was decided
// before the workers left that it is owed successors for: it asks for these at least.
func (s *postponed) demand(v *view, held []arbiter.Worker) arbiter.Demand {
	has, owed, workers := countAlive(s.in.members), s.owed(v), s.unmet+len(s.wakes)
	if !s.fresh {
		workers = max(workers, owed)
	}
	return arbiter.Demand{
		Endpoint: s.e.ID, Workers: workers, Wakes: len(s.wakes), Sleepers: s.sleepers(held), Has: has, Request: requestOf(s.in),
		Oldest: max(s.in.oldest, s.in.orphans.waited), MaxSwapWait: s.e.Fleet.SwapWait(), Priority: s.e.Fleet.Priority,
		Replaces: owed, Kept: max(0, s.e.WorkersMin-has),
	}
}

// owed is how many workers were replaced, have left, and are without a successor.
func (s *postponed) owed(v *view) int {
	owed := len(s.m.memory.replaced)
	for _, p := range v.fleets[s.e.ID] {
		if _, heard := v.worker(p); (heard || p.Status == pod.Running) && slices.Contains(s.m.memory.replaced, p.ID) {
			owed--
		}
	}
	return owed
}

// holders are the pods that have GPUs: those that have claimed them, and those that
// were given some and are about to.
func (l *leader) holders(v *view, claims map[string]registry.GPUClaims) []arbiter.Worker {
	found := map[string]*arbiter.Worker{}
	add := func(id, endpointID, machine, uuid string, share int, since time.Time) {
		w := found[id]
		if w == nil {
			w = &arbiter.Worker{Pod: id, Endpoint: endpointID, Machine: machine, Share: share, Held: max(0, v.now.Sub(since)), State: arbiter.Leaving}
			found[id] = w
		}
		if !slices.Contains(w.Devices, uuid) {
			w.Devices = append(w.Devices, uuid)
		}
		w.Share = max(w.Share, share)
	}
	for uuid, c := range claims {
		for _, h := range c.Holders {
			add(h.Pod, h.Endpoint, h.Machine, uuid, h.Share, h.Since)
		}
	}
	for _, p := range v.pods {
		if p.Status != pod.Running {
			continue
		}
		share := shareNow(p, found[p.ID] != nil)
		for _, uuid := range p.Devices {
			add(p.ID, p.Endpoint, p.MachineID, uuid, share, p.Created)
		}
		if w := found[p.ID]; w != nil { // it goes on until more is known
			w.State, w.Kept = arbiter.Busy, true
		}
	}
	for _, s := range l.gpus {
		s.describe(found, v)
	}
	all := make([]arbiter.Worker, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[id].Devices)
		all = append(all, *found[id])
	}
	return all
}

// shareNow is what a pod needs of its GPUs now, in hundredths. If it sleeps and has claimed
// them, its claims say that: it may have given back a part.
func shareNow(p pod.Pod, claimed bool) int {
	if p.Sleep.Sleeps() && claimed {
		return 0
	}
	return placement.RequestOf(p.Spec).Share
}

// describe says of the endpoint's workers what they do.
func (s *postponed) describe(found map[string]*arbiter.Worker, v *view) {
	members := slices.Clone(s.in.members)
	rank := map[state]int{busy: 0, starting: 1, idle: 2, sleeping: 3, draining: 3, unhealthy: 3}
	slices.SortStableFunc(members, func(a, b member) int { return rank[a.state] - rank[b.state] })
	for i, x := range members {
		w := found[x.id]
		if w == nil {
			continue
		}
		w.Rested, w.Priority, w.MinHold = x.rested, s.e.Fleet.Priority, s.e.Fleet.Hold()
		if !s.e.Paused(v.now) { // else no worker gets those that wait
			w.Waiting, w.Oldest = s.in.queued, s.in.oldest
		}
		if x.state == starting {
			w.Held = 0
		} else {
			w.Held, w.Startup = readiness(v.pod(s.e.ID, x.id), w.Held, v.now)
		}
		w.Kept = x.locked || s.unknown(v.now) || i < s.e.WorkersMin && x.state != sleeping
		switch x.state {
		case starting:
			w.State = arbiter.Starting
		case idle, sleeping:
			w.State = arbiter.Idle
		case busy:
			w.State = arbiter.Busy
		case draining, unhealthy:
			w.State = arbiter.Leaving
		}
		s.describeSleep(w, x)
		switch {
		case slices.Contains(s.out.drain, x.id):
			w.State, w.Keeps = arbiter.Leaving, 0
		case slices.Contains(s.out.wake, x.id):
			w.State = arbiter.Starting
		}
	}
}

// readiness is how long a worker that was heard of has been ready, and what it took to be: by
// its pod's record, which has the last start and the last wake. held is how long it has had
// its GPU.
func readiness(p pod.Pod, held time.Duration, now time.Time) (ready, startup time.Duration) {
	phase, _ := p.Phase()
	switch {
	case p.Sleep.Wakes(): // that it is awake is not noted yet
		return 0, max(0, now.Sub(p.Sleep.Wake))
	case !p.Sleep.Awoke.IsZero():
		return max(0, now.Sub(p.Sleep.Awoke)), p.Sleep.Took
	case phase == pod.Ready:
		return max(0, now.Sub(p.Phases.Ready)), max(0, p.Phases.Ready.Sub(p.Phases.Begun()))
	case phase == "": // it was started when no phases were noted
		return held, 0
	}
	return 0, held // that it is ready is not noted yet
}

// requestOf is what one worker of the fleet needs.
func requestOf(in fleetSample) placement.Request {
	r := placement.RequestOf(in.spec)
	r.Driver = pod.Driver(in.from.Fleet.Driver)
	return r
}
