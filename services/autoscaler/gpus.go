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
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// gpuTextInterval is how often at most a decision is written because only its text
	// about GPUs is another one.
	gpuTextInterval = 5 * time.Second
	// maxNamedHolders bounds those that a text names.
	maxNamedHolders = 3
	// absentProcess and absentDocker are how long the machine of a claim whose pod is over
	// must be away until others release it: processes end with their autoscaler, containers
	// go on.
	absentProcess = 2 * time.Second
	absentDocker  = 10 * time.Minute
	// sweepInterval is the pause between two looks at claims where no endpoint needs a GPU.
	sweepInterval = 10 * time.Second
	// maxUnknown is how long an endpoint that cannot be looked at, as while its queue is
	// unreadable, asks for what it asked for before. GPUs stay free for it until then.
	maxUnknown = 30 * time.Second
)

// gpuState is what was decided about an endpoint whose workers need GPUs, before they
// were given any.
type gpuState struct {
	e   endpoint.Endpoint
	m   *endpointState
	in  fleetSample
	out decision
	// wakes are the workers to wake that must regain their GPUs first.
	wakes []string
	// fresh is true until it is settled.
	fresh bool
	// looked is when the endpoint was looked at for this decision.
	looked time.Time
}

// unknown reports whether no look at the endpoint has succeeded for maxUnknown: it asks for
// no GPU then, and its workers keep theirs.
func (s *gpuState) unknown(now time.Time) bool { return now.Sub(s.looked) >= maxUnknown }

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
	s := &gpuState{e: e, m: m, in: in, out: out, fresh: true, looked: m.looked}
	s.splitWakes()
	l.gpus[e.ID] = s
	return true
}

// arbitrate gives the GPUs to those that ask for them, and settles what was postponed.
func (l *leader) arbitrate(ctx context.Context, v *view) {
	var fresh []*gpuState
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
		left := s.grant(in, d, v.now)
		s.yield(d, l.gpus)
		s.out = replace(s.e, s.in.sample, s.out, v.now)
		if err := l.settle(ctx, v, s.e, s.m, s.in, s.out); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "fleet not scaled, trying again", "endpoint", s.e.ID, "err", err)
		}
		s.fresh, s.out.start = false, left
	}
}

// grant makes the decision start and wake what was given, and says why if that is nothing.
// It returns how many are still to be started.
func (s *gpuState) grant(in arbiter.Input, d arbiter.Decision, now time.Time) (left int) {
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
	return max(0, asked-s.out.start-woken-len(s.wakes))
}

// yield makes the decision stop the workers that are to go, or put them to sleep.
func (s *gpuState) yield(d arbiter.Decision, all map[string]*gpuState) {
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
func waitText(s *gpuState, in arbiter.Input, w arbiter.Wait, now time.Time) string {
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

func requestOf(in fleetSample) placement.Request {
	r := placement.RequestOf(in.spec)
	r.Driver = pod.Driver(in.from.Fleet.Driver)
	return r
}

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
func (s *gpuState) demand(v *view, held []arbiter.Worker) arbiter.Demand {
	has, owed, workers := countAlive(s.in.members), s.owed(v), s.out.start+len(s.wakes)
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
func (s *gpuState) owed(v *view) int {
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
func (s *gpuState) describe(found map[string]*arbiter.Worker, v *view) {
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

// sweepClaims releases the claims of machines that are gone, once their pods are over.
// A machine that is there releases its own.
func (l *leader) sweepClaims(ctx context.Context, v *view, machines []registry.Inventory, claims map[string]registry.GPUClaims) error {
	there := map[string]bool{} // machines, and pods that run on one
	for _, m := range machines {
		there[m.ID] = true
	}
	for _, p := range v.pods {
		if p.Status == pod.Running {
			there[p.MachineID+" "+p.ID] = true
		}
	}
	before := l.orphaned
	l.orphaned = map[string]time.Time{}
	for uuid, c := range claims {
		for _, h := range c.Holders {
			if there[h.Machine] || there[h.Machine+" "+h.Pod] {
				continue
			}
			if err := l.sweepClaim(ctx, v.now, uuid, h, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepClaim releases a claim without a pod and a machine, if that was so for long
// enough. before has since when that is known.
func (l *leader) sweepClaim(ctx context.Context, now time.Time, uuid string, h registry.GPUHolder, before map[string]time.Time) error {
	key := h.Machine + " " + h.Pod + " " + uuid
	absent := lasting(key, before, l.orphaned, now)
	away := absentProcess
	if h.Driver == pod.Docker {
		away = absentDocker
	}
	if absent < away {
		return nil
	}
	l.log.InfoContext(ctx, "GPU released, its machine is gone", "gpu", uuid, "pod", h.Pod, "machine", h.Machine)
	return l.registry.GPUs.Release(ctx, uuid, h.Pod, h.Machine)
}
