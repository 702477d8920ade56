package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// fleetSample is a sample, and what it takes to apply a decision about it.
type fleetSample struct {
	sample
	// from is what new workers are started from: the endpoint, or as it was before a
	// canary; spec follows from it.
	from endpoint.Endpoint
	spec pod.Spec
	pods []pod.Pod // of the fleet, alive and gone
	// placed are where the workers go that were given GPUs.
	placed []placement.Placement
}

// sample reads what the decision about an endpoint needs.
func (l *leader) sample(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState) fleetSample {
	in := fleetSample{pods: v.fleets[e.ID], from: e}
	in.machines = len(v.machines[pod.Driver(e.Fleet.Driver)])
	stats, err := l.count(ctx, v.now, e, m)
	if err != nil {
		in.unknown = "its jobs could not be counted"
		l.log.DebugContext(ctx, "jobs not counted", "endpoint", e.ID, "err", err)
		return in
	}
	in.queued, in.queuedLow = stats.Queued-stats.QueuedLow, stats.QueuedLow
	in.running, in.allRunning = stats.Running-stats.RunningLow, stats.Running
	if in.queued > 0 {
		if in.oldest, err = l.queue.Counts.OldestWait(ctx, e, job.Normal); err != nil {
			in.unknown = "it could not be seen how long its jobs wait"
			l.log.DebugContext(ctx, "oldest job not found", "endpoint", e.ID, "err", err)
			return in
		}
	}
	if in.orphans, err = l.orphans(ctx, v, e, m, stats); err != nil {
		in.unknown = "the jobs that were handed out could not be listed"
		l.log.DebugContext(ctx, "handed-out jobs not listed", "endpoint", e.ID, "err", err)
		return in
	}
	if e.Fleet.External() {
		in.members, in.unknown = l.externalWorkers(ctx, v, e.ID, m)
		return in
	}
	if in.spec, in.invalid, in.unknown = l.specOf(ctx, v, e); in.unknown != "" {
		return in
	}
	in.members, in.unknown = l.members(ctx, v, e, m, in)
	in.elsewhere = jobsElsewhere(v.workersOf[e.ID], in.members)
	if unknown := l.sampleCanary(ctx, v, e, m, &in); unknown != "" {
		in.unknown = unknown
	}
	var last pod.Pod
	if slices.ContainsFunc(in.pods, pod.Pod.Failed) { // else nothing is copied
		in.failures, last = streak(podsMadeFrom(e, in), v.now)
	}
	in.lastFailure, in.failure, in.failedOn = last.Changed, last.Change, last.MachineID
	in.leaving = leavingOf(v, in.pods)
	return in
}

// needsGPUs reports whether the endpoint's workers do, as far as templates are known.
func needsGPUs(v *view, e endpoint.Endpoint) bool {
	return !e.Fleet.External() && (e.Fleet.GPUs > 0 || v.templates[e.Fleet.TemplateID].Spec.GPUs > 0)
}

// members are the workers of the fleet that are not gone. unknown says which
// of them could not be asked about.
func (l *leader) members(ctx context.Context, v *view, e endpoint.Endpoint, m *endpointState, in fleetSample) (all []member, unknown string) {
	states, stale := map[memberState]time.Time{}, map[staleJob]time.Time{}
	jobsLeft := jobsAreLeft(e, in.sample, v.now)
	for _, p := range in.pods {
		if p.Status != pod.Running {
			continue
		}
		w, heard := v.worker(p)
		token, err := l.registry.Tokens.Find(ctx, e.ID, p.ID)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			unknown = "it could not be seen which workers drain"
		}
		now := withSleep(stateOf(w, heard), p, w)
		if token.Draining {
			now = draining
		}
		since := foundSince(memberState{p.ID, now}, m.states, states, v.now)
		if now == sleeping {
			since = p.Sleep.At
		}
		x := member{
			id: p.ID, state: now, since: since, rested: restedOf(w, since, v.now), jobs: len(w.Running), locked: p.Locked,
			sleeps: heard && w.Sleeps, asked: p.Sleep.Sleeps(), stale: in.invalid == "" && !madeFrom(p, in.spec, e.Fleet.Driver),
		}
		x.fault = faultOf(token, m.staleFor(p.ID, w, stale, v.now), m.ignoresFor(x, jobsLeft, stale, v.now), v.now)
		all = append(all, withFreedGPUs(x, e, p, v.claims))
	}
	m.states, m.stale = states, stale
	return all, unknown
}

// jobsElsewhere is how many jobs those of the workers hold that are no members.
func jobsElsewhere(workers []registry.Worker, members []member) (n int) {
	for _, w := range workers {
		if !slices.ContainsFunc(members, func(m member) bool { return m.id == w.ID }) {
			n += len(w.Running)
		}
	}
	return n
}

// podsMadeFrom returns the pods that the spec and the driver would make now: how others
// ended, and those of a former endpoint of this id, says nothing of the next.
func podsMadeFrom(e endpoint.Endpoint, in fleetSample) []pod.Pod {
	return slices.DeleteFunc(slices.Clone(in.pods), func(p pod.Pod) bool {
		return !madeFrom(p, in.spec, in.from.Fleet.Driver) || p.Created.Before(e.Created)
	})
}

// externalWorkers are the workers that somebody else has started. unknown says which
// of them could not be asked about.
func (l *leader) externalWorkers(ctx context.Context, v *view, endpointID string, m *endpointState) (all []member, unknown string) {
	states := map[memberState]time.Time{}
	for _, w := range v.workersOf[endpointID] {
		var token registry.Token
		if !w.Native { // those have none
			var err error
			if token, err = l.registry.Tokens.Find(ctx, endpointID, w.ID); err != nil && !errors.Is(err, registry.ErrNotFound) {
				unknown = "it could not be seen which workers drain"
			}
		}
		now := stateOf(w, true)
		if w.Draining || token.Draining || v.pod(endpointID, w.ID).Drains(w.Started) {
			now = draining
		}
		since := foundSince(memberState{w.ID, now}, m.states, states, v.now)
		all = append(all, member{id: w.ID, state: now, since: since, rested: restedOf(w, since, v.now), jobs: len(w.Running)})
	}
	m.states = states
	return all, unknown
}

// foundSince returns since when each look has found what is found now, and notes that in next.
// before is what the look before noted.
func foundSince[K comparable](what K, before, next map[K]time.Time, now time.Time) time.Time {
	since, found := before[what]
	if !found {
		since = now
	}
	next[what] = since
	return since
}

// lasting is foundSince, as how long that is.
func lasting[K comparable](what K, before, next map[K]time.Time, now time.Time) time.Duration {
	return now.Sub(foundSince(what, before, next, now))
}

// restedOf is how long a worker is known to have had no job, which it was first
// seen without at since. Short jobs come and go between two heartbeats. A native
// worker beats at once when it has had one; what another one did since its last
// ping is not known yet.
func restedOf(w registry.Worker, since, at time.Time) time.Duration {
	if !w.Native {
		at = w.Seen
	}
	rested := at.Sub(since)
	if w.Rested > 0 {
		rested = min(rested, at.Sub(w.Seen)+w.Rested)
	}
	return max(0, rested)
}

// stateOf is what a worker's heartbeat says.
func stateOf(w registry.Worker, heard bool) state {
	switch {
	case !heard || w.State == registry.WorkerInitializing:
		return starting
	case w.State == registry.WorkerUnhealthy:
		return unhealthy
	case len(w.Running) > 0 || w.State == registry.WorkerRunning:
		return busy
	}
	return idle
}

// backgroundAge is how old the machines and templates may be that a decision
// goes by. Each reading costs the server a consumer.
const backgroundAge = 2 * time.Second

// background is what changes seldom.
type background struct {
	machines  map[pod.Driver][]string
	listed    time.Time
	templates map[string]pod.Template
	read      time.Time
}

// view is everything that is the same for all endpoints at one look.
type view struct {
	now       time.Time
	endpoints []endpoint.Endpoint        // by id; not to be changed
	pods      []pod.Pod                  // by endpoint, then by id; not to be changed
	workers   map[string]registry.Worker // by id of endpoint and pod
	machines  map[pod.Driver][]string
	templates map[string]pod.Template
	// claims are those of the GPUs, by UUID; nil if no endpoint needs any.
	claims map[string]registry.GPUClaims
	// fleets are the pods of fleets, and workersOf all workers, by endpoint.
	fleets    map[string][]pod.Pod
	workersOf map[string][]registry.Worker
}

// endpoint is the endpoint of this id, unless it is being deleted.
func (v *view) endpoint(id string) (e endpoint.Endpoint, exists bool) {
	i, exists := slices.BinarySearchFunc(v.endpoints, id, func(e endpoint.Endpoint, id string) int { return strings.Compare(e.ID, id) })
	if exists {
		e = v.endpoints[i]
	}
	return e, exists
}

// pod is the endpoint's pod of this id, the zero value for none.
func (v *view) pod(endpointID, id string) pod.Pod {
	return registry.KnownPods{All: v.pods}.Find(endpointID, id)
}

// load is how many pods run, by machine.
func (v *view) load() map[string]int {
	load := map[string]int{}
	for _, p := range v.pods {
		if p.Status == pod.Running {
			load[p.MachineID]++
		}
	}
	return load
}

func (v *view) worker(p pod.Pod) (registry.Worker, bool) {
	w, ok := v.workers[p.Endpoint+"."+p.ID]
	return w, ok
}

// unwell reports whether a worker of a fleet says that it is unhealthy.
func (v *view) unwell() bool {
	return slices.ContainsFunc(v.pods, func(p pod.Pod) bool {
		if p.Status != pod.Running || !fleet(p) {
			return false
		}
		w, _ := v.worker(p)
		return w.State == registry.WorkerUnhealthy
	})
}

// fleet reports whether autoscalers start and stop the pod as a worker.
func fleet(p pod.Pod) bool { return p.Endpoint != "" && p.Driver != "" }

// fleetOf are those of an endpoint's pods that autoscalers start and stop. It copies none if
// all are, or none is.
func fleetOf(pods []pod.Pod) (some []pod.Pod) {
	if !slices.ContainsFunc(pods, func(p pod.Pod) bool { return !fleet(p) }) {
		return pods
	}
	for _, p := range pods {
		if fleet(p) {
			some = append(some, p)
		}
	}
	return some
}

// readView reads what is the same for all endpoints.
func (l *leader) readView(ctx context.Context) (*view, error) {
	v := &view{
		now: l.queue.Now(), workers: map[string]registry.Worker{},
		fleets: map[string][]pod.Pod{}, workersOf: map[string][]registry.Worker{},
	}
	var pods registry.KnownPods
	var workers []registry.Worker
	var errs [3]error
	v.endpoints, errs[0] = l.registry.Endpoints.Known(ctx)
	pods, errs[1] = l.registry.Pods.Known(ctx)
	workers, errs[2] = l.registry.Workers.List(ctx, "")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	v.pods = pods.All
	for id, of := range pods.Of {
		v.fleets[id] = fleetOf(of)
	}
	for _, w := range workers {
		v.workers[w.Endpoint+"."+w.ID] = w
		v.workersOf[w.Endpoint] = append(v.workersOf[w.Endpoint], w)
	}
	return v, l.readBackground(ctx, v)
}

// readBackground adds the machines, the templates and the claims of GPUs.
func (l *leader) readBackground(ctx context.Context, v *view) error {
	known, templates := &l.known, false
	stale := v.now.Sub(known.listed) >= backgroundAge
	for _, e := range v.endpoints {
		templates = templates || e.Fleet.TemplateID != ""
		stale = stale || !e.Fleet.External() && len(known.machines[pod.Driver(e.Fleet.Driver)]) == 0
	}
	if stale {
		machines, err := l.registry.Instances.Machines(ctx)
		if err != nil {
			return err
		}
		known.machines, known.listed = machines, v.now
	}
	if templates && v.now.Sub(known.read) >= backgroundAge {
		list, err := l.registry.Templates.List(ctx)
		if err != nil {
			return err
		}
		known.templates, known.read = map[string]pod.Template{}, v.now
		for _, t := range list {
			known.templates[t.ID] = t
		}
	}
	v.machines, v.templates = known.machines, known.templates
	if slices.ContainsFunc(v.endpoints, func(e endpoint.Endpoint) bool { return needsGPUs(v, e) }) {
		claims, err := l.registry.GPUs.Claims(ctx)
		v.claims = claims
		return err
	}
	return nil
}

// specOf is what the endpoint's workers are started from. invalid says why
// none can be, unknown that it could not be read.
func (l *leader) specOf(ctx context.Context, v *view, e endpoint.Endpoint) (spec pod.Spec, invalid, unknown string) {
	var template pod.Template
	if id := e.Fleet.TemplateID; id != "" {
		var found bool
		if template, found = v.templates[id]; !found { // it may have been made a moment ago
			var err error
			template, err = l.registry.Templates.Get(ctx, id)
			switch {
			case errors.Is(err, pod.ErrNotFound):
				invalid = fmt.Sprintf("the template %s is not there", id)
			case err != nil:
				return spec, "", "its template could not be read"
			}
		}
	}
	spec = specOf(e, template.Spec)
	if invalid == "" {
		invalid = runnable(pod.Driver(e.Fleet.Driver), spec)
	}
	return spec, invalid, ""
}
