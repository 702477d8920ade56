// Package arbiter shares few GPUs among many endpoints. It says, of what is known now,
// which waiting endpoint gets which free GPU and which worker has to yield its own. It
// is a pure function: who claims and who drains is the autoscaler's business.
//
// The rule (docs/adr/0062): jobs of the model that is loaded go first, for each swap
// costs a start. An idle worker whose endpoint has no job yields as soon as it has been
// ready for MinHold. A worker with jobs yields only to an endpoint whose oldest job has
// waited for half of its MaxSwapWait, and for longer than those of its own; it ends the
// jobs it has and takes no more. So A A A B A becomes A A A A B.
package arbiter

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"flightline/shared/placement"
	"flightline/shared/pod"
)

// State is what a worker does.
type State int

// The states.
const (
	// Starting workers were not heard of yet.
	Starting State = iota
	Idle
	Busy
	// Leaving workers take no more jobs; their GPUs are free soon.
	Leaving
)

// Worker is a pod that has GPUs.
type Worker struct {
	Pod, Endpoint, Machine string
	// Devices are the UUIDs of its GPUs, Share what it has of each, in hundredths.
	Devices []string
	Share   int
	State   State
	// Held is how long it has been ready, MinHold for how long its endpoint keeps it then.
	// Startup is what it took to be ready, 0 if that is not known.
	Held, MinHold, Startup time.Duration
	// Rested is how long it has had no job.
	Rested time.Duration
	// Waiting counts the jobs of its endpoint that no worker has, Oldest is how long the
	// first of them has waited.
	Waiting  int
	Oldest   time.Duration
	Priority int
	// Kept workers never yield: they are locked, or workersMin asks for them.
	Kept bool
}

// Demand is an endpoint that is to get workers.
type Demand struct {
	Endpoint string
	// Workers is how many more, 1 or more; Has how many it has that are not leaving.
	Workers, Has int
	Request      placement.Request
	// Oldest is how long its first job has waited, MaxSwapWait what that should not exceed.
	Oldest, MaxSwapWait time.Duration
	Priority            int
}

// overdue reports whether busy workers are to yield: to an endpoint without workers that
// waits for long. The other half of the bound is for the job that they run and for the start.
func (d Demand) overdue() bool { return d.Has == 0 && d.MaxSwapWait > 0 && d.Oldest >= d.MaxSwapWait/2 }

// Input is all that a decision goes by.
type Input struct {
	// Devices are the GPUs of all machines. What they have used is what Workers hold, and
	// what others hold of whom nothing else is known.
	Devices []placement.Device
	Workers []Worker
	Demands []Demand
	// Load is how many pods run, by machine.
	Load map[string]int
}

// Grant is one worker to start.
type Grant struct {
	Endpoint string
	placement.Placement
}

// Yield is a worker that is to take no more jobs, and to end when it has none.
type Yield struct {
	Pod, Endpoint string
	// For is the endpoint that waits.
	For string
}

// Wait is a demand that gets no GPU now.
type Wait struct {
	// Coming means that a GPU is being freed for it.
	Coming bool
	// By are the workers that hold what it could use, the next to yield first. Until is
	// when that may be asked to; 0 means that it is not known, as while a worker that may
	// never yield holds all.
	By    []Worker
	Until time.Duration
}

// Decision is what to do now.
type Decision struct {
	Grants []Grant
	Yields []Yield
	Waits  map[string]Wait // by endpoint
}

// Decide says who gets a GPU and who yields.
func Decide(in Input) Decision {
	a := &arbitration{in: in, out: Decision{Waits: map[string]Wait{}}, yielded: map[string]bool{}}
	a.free = newPool(in.Devices)
	a.coming = newPool(in.Devices)
	for _, w := range in.Workers {
		if w.State == Leaving {
			a.coming.give(w)
		}
	}
	demands := slices.Clone(in.Demands)
	slices.SortStableFunc(demands, first)
	for _, d := range demands {
		for range d.Workers {
			if !a.serve(d) {
				break
			}
		}
	}
	return a.out
}

// first orders demands: those that wait too long, then by priority, then those without
// workers, then by waiting time.
func first(a, b Demand) int {
	late := func(d Demand) int {
		if d.overdue() {
			return 0
		}
		return 1
	}
	return cmp.Or(late(a)-late(b), b.Priority-a.Priority, min(a.Has, 1)-min(b.Has, 1), cmp.Compare(b.Oldest, a.Oldest), strings.Compare(a.Endpoint, b.Endpoint))
}

// arbitration is one decision under way.
type arbitration struct {
	in  Input
	out Decision
	// free is what can be claimed now, coming what will be soon, that included.
	free, coming pool
	yielded      map[string]bool
}

// serve finds a GPU for one worker of the demand, or lets others yield. It reports
// whether another one may be looked for.
func (a *arbitration) serve(d Demand) bool {
	if p, ok := placement.Choose(d.Request, a.free, a.in.Load); ok {
		a.reserve(p, d.Request)
		a.out.Grants = append(a.out.Grants, Grant{d.Endpoint, p})
		return true
	}
	wait := Wait{Coming: true}
	p, ok := placement.Choose(d.Request, a.coming, a.in.Load)
	if !ok {
		victims := a.victims(d)
		trial := slices.Clone(a.coming)
		for _, w := range victims {
			trial.give(w)
			if p, ok = placement.Choose(d.Request, trial, a.in.Load); ok {
				break
			}
		}
		if !ok {
			wait = a.explain(d)
		}
		a.yield(d, p, victims)
	}
	if ok {
		a.reserve(p, d.Request)
	}
	if _, said := a.out.Waits[d.Endpoint]; !said {
		a.out.Waits[d.Endpoint] = wait
	}
	return ok
}

// reserve keeps what was placed from later demands.
func (a *arbitration) reserve(p placement.Placement, r placement.Request) {
	a.free.take(p, r.Share)
	a.coming.take(p, r.Share)
}

// yield lets those of the workers go that hold what was placed.
func (a *arbitration) yield(d Demand, p placement.Placement, victims []Worker) {
	need := placement.Request{Share: d.Request.Share}
	for _, w := range victims {
		short := slices.ContainsFunc(w.Devices, func(uuid string) bool {
			return slices.Contains(p.UUIDs, uuid) && a.coming.used(uuid)+need.Share > pod.WholeGPU
		})
		if !short {
			continue
		}
		a.coming.give(w)
		a.yielded[w.Pod] = true
		a.out.Yields = append(a.out.Yields, Yield{Pod: w.Pod, Endpoint: w.Endpoint, For: d.Endpoint})
	}
}

// victims are the workers that may yield to the demand, the first to go first.
func (a *arbitration) victims(d Demand) []Worker {
	var found []Worker
	for _, w := range a.in.Workers {
		if !a.yielded[w.Pod] && yieldsTo(w, d) {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, firstToGo)
	return found
}

// firstToGo orders workers: of low priority first, idle before busy, of the endpoint that
// has least to do, the longest idle.
func firstToGo(a, b Worker) int {
	busy := func(w Worker) int {
		if w.State == Idle {
			return 0
		}
		return 1
	}
	return cmp.Or(a.Priority-b.Priority, busy(a)-busy(b), a.Waiting-b.Waiting, cmp.Compare(b.Rested, a.Rested),
		cmp.Compare(b.Held, a.Held), strings.Compare(a.Pod, b.Pod))
}

// yieldsTo reports whether the worker is to yield to the demand now.
func yieldsTo(w Worker, d Demand) bool {
	left, ever := yieldsIn(w, d)
	return ever && left <= 0
}

// yieldsIn is how long it takes at most until the worker may be asked to yield. A worker
// with jobs works for startupFactor times what it took to start, and while its endpoint's jobs have
// waited for longer: with more work than the GPUs can do, all would yield all the time
// and none do a job.
func yieldsIn(w Worker, d Demand) (left time.Duration, ever bool) {
	switch {
	case !mayYield(w, d):
		return 0, false
	case w.State == Idle && w.Waiting == 0 && (w.Priority <= d.Priority || d.overdue()):
		return max(w.MinHold-w.Held, restTime-w.Rested), true
	case w.Waiting > 0 && w.Oldest >= d.Oldest:
		return 0, false
	}
	return max(w.MinHold-w.Held, startupFactor*w.Startup-w.Held, d.MaxSwapWait/2-d.Oldest), d.MaxSwapWait > 0 && d.Has == 0
}

// restTime is how long a worker has had no job when it yields: jobs of one model come
// together, and the next one is often seconds away.
const restTime = 5 * time.Second

// startupFactor bounds what starts cost when there is more work than the GPUs can do: a
// worker works for three times as long as it took to start.
const startupFactor = 3

// mayYield reports whether the worker could ever yield to the demand.
func mayYield(w Worker, d Demand) bool {
	return w.Endpoint != d.Endpoint && !w.Kept && (w.State == Idle || w.State == Busy)
}

// never is when a worker yields that does not.
const never = time.Duration(math.MaxInt64)

// explain says who holds what the demand could use, and when the first may be asked to yield.
func (a *arbitration) explain(d Demand) Wait {
	wait := Wait{}
	suits := func(w Worker) bool { // its GPUs would do, if it left
		trial := newPool(a.in.Devices)
		trial.clear()
		_, ok := placement.Choose(placement.Request{Count: 1, Share: d.Request.Share, Types: d.Request.Types, MinMemoryMB: d.Request.MinMemoryMB, MinCUDA: d.Request.MinCUDA},
			slices.DeleteFunc(trial, func(x placement.Device) bool { return !slices.Contains(w.Devices, x.UUID) }), nil)
		return ok
	}
	for _, w := range a.in.Workers {
		if suits(w) {
			wait.By = append(wait.By, w)
		}
	}
	until := func(w Worker) time.Duration {
		left, ever := yieldsIn(w, d)
		if !ever {
			return never
		}
		return max(0, left)
	}
	slices.SortStableFunc(wait.By, func(x, y Worker) int { return cmp.Or(cmp.Compare(until(x), until(y)), firstToGo(x, y)) })
	if len(wait.By) > 0 {
		if next := until(wait.By[0]); next < never {
			wait.Until = next
		}
	}
	return wait
}

// pool are devices with what is used of them. Two machines may have the same one.
type pool []placement.Device

func newPool(devices []placement.Device) pool { return slices.Clone(devices) }

func (p pool) change(uuid string, by int) {
	for i := range p {
		if p[i].UUID == uuid {
			p[i].Used += by
		}
	}
}

func (p pool) used(uuid string) int {
	for _, d := range p {
		if d.UUID == uuid {
			return d.Used
		}
	}
	return pod.WholeGPU
}

// give adds what the worker holds.
func (p pool) give(w Worker) {
	for _, uuid := range w.Devices {
		p.change(uuid, -w.Share)
	}
}

// take reserves what was placed.
func (p pool) take(at placement.Placement, share int) {
	for _, uuid := range at.UUIDs {
		p.change(uuid, share)
	}
}

// clear frees all.
func (p pool) clear() {
	for i := range p {
		p[i].Used = 0
	}
}
