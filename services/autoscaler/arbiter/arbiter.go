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

// String is the state in a word, as "idle".
func (s State) String() string {
	return [...]string{Starting: "starting", Idle: "idle", Busy: "busy", Leaving: "leaving"}[s]
}

// Worker is a pod that has GPUs.
type Worker struct {
	Pod, Endpoint, Machine string
	// Devices are the UUIDs of its GPUs, Share what it has of each, in hundredths.
	Devices []string
	Share   int
	// Keeps is what it keeps of each when it yields or leaves: it sleeps then. 0 if it is
	// stopped. CanSleep means that it may be put to sleep, Asleep that it sleeps and has
	// given back what it does not keep.
	Keeps            int
	CanSleep, Asleep bool
	State            State
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
	// Sleepers are workers that would wake in place of a start, the first to wake first.
	// Wakes of Workers may be these only.
	Sleepers []Sleeper
	Wakes    int
	// Oldest is how long its first job has waited, MaxSwapWait what that should not exceed.
	Oldest, MaxSwapWait time.Duration
	Priority            int
	// Replaces is for how many of Workers another one of it has made room, Kept for how many
	// of all workersMin asks.
	Replaces, Kept int
}

// Sleeper is a worker that sleeps and has given back a part of its GPUs.
type Sleeper struct {
	Pod, Machine string
	Devices      []string
	// Share is what it needs of each besides what it has kept.
	Share int
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

// Wake is a worker that gets back what it gave while it slept.
type Wake struct{ Pod, Endpoint string }

// Yield is a worker that is to take no more jobs, and to end when it has none, or to sleep.
type Yield struct {
	Pod, Endpoint string
	// For is the endpoint that waits.
	For   string
	Sleep bool
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
	Wakes  []Wake
	Yields []Yield
	Waits  map[string]Wait // by endpoint
}

// Decide says who gets a GPU and who yields.
func Decide(in Input) Decision {
	a := &arbitration{in: in, out: Decision{Waits: map[string]Wait{}}, yielded: map[string]bool{}, woken: map[string]bool{}, started: map[string]int{}}
	a.free, a.coming = slices.Clone(in.Devices), slices.Clone(in.Devices)
	for _, w := range in.Workers {
		if w.State == Leaving {
			a.coming.give(w, w.Keeps)
		}
	}
	full := map[string]bool{} // endpoints that nothing more was found for
	for _, t := range turns(in.Demands) {
		for range t.workers {
			if full[t.Endpoint] = full[t.Endpoint] || !a.serve(t.Demand); full[t.Endpoint] {
				break
			}
		}
	}
	return a.out
}

// turn are workers of a demand that are served before those of turns of a higher class.
type turn struct {
	Demand
	workers, class int
}

// turns are the parts of the demands in order: workers that never yield and that others have
// made room for, those of demands that wait too long, others that room was made for, and the
// rest. So a new version takes the GPU of the former one, and no more than that.
func turns(demands []Demand) []turn {
	all := make([]turn, 0, len(demands))
	for _, d := range demands {
		owed := min(d.Replaces, d.Workers)
		kept := min(d.Kept, owed)
		next, last := 2, 3
		if d.overdue() {
			next, last = 1, 1
		}
		all = append(all, turn{d, kept, 0}, turn{d, owed - kept, next}, turn{d, d.Workers - owed, last})
	}
	slices.SortStableFunc(all, first)
	return all
}

// first orders turns: by class, then by priority, then those without workers, then by
// waiting time.
func first(a, b turn) int {
	return cmp.Or(a.class-b.class, b.Priority-a.Priority, min(a.Has, 1)-min(b.Has, 1), cmp.Compare(b.Oldest, a.Oldest), strings.Compare(a.Endpoint, b.Endpoint))
}

// arbitration is one decision under way.
type arbitration struct {
	in  Input
	out Decision
	// free is what can be claimed now, coming what will be soon, that included.
	free, coming pool
	yielded      map[string]bool
	// woken are the sleepers, and started the numbers of new workers by endpoint, that
	// something was found for.
	woken   map[string]bool
	started map[string]int
}

// option is where a worker of a demand goes: a new one, or a sleeper that wakes there.
type option struct {
	placement.Placement
	share   int // of each GPU
	sleeper string
}

// find looks for what the demand can use in a pool: a sleeper wakes sooner than another
// worker starts.
func (a *arbitration) find(d Demand, in pool) (option, bool) {
	for _, s := range d.Sleepers {
		if !a.woken[s.Pod] && in.hasRoom(s) {
			return option{placement.Placement{Machine: s.Machine, UUIDs: s.Devices}, s.Share, s.Pod}, true
		}
	}
	if a.started[d.Endpoint] >= d.Workers-d.Wakes {
		return option{}, false
	}
	p, ok := placement.Choose(d.Request, in, a.in.Load)
	return option{p, d.Request.Share, ""}, ok
}

// serve finds a GPU for one worker of the demand, or lets others yield. It reports
// whether another one may be looked for.
func (a *arbitration) serve(d Demand) bool {
	if o, ok := a.find(d, a.free); ok {
		a.reserve(d, o)
		if o.sleeper != "" {
			a.out.Wakes = append(a.out.Wakes, Wake{o.sleeper, d.Endpoint})
		} else {
			a.out.Grants = append(a.out.Grants, Grant{d.Endpoint, o.Placement})
		}
		return true
	}
	wait := Wait{Coming: true}
	o, ok := a.find(d, a.coming)
	for _, stop := range []bool{false, true} {
		if !ok {
			o, ok = a.yield(d, stop)
		}
	}
	if ok {
		a.reserve(d, o)
	} else {
		wait = a.explain(d)
	}
	if _, said := a.out.Waits[d.Endpoint]; !said {
		a.out.Waits[d.Endpoint] = wait
	}
	return ok
}

// reserve keeps what was found from later demands.
func (a *arbitration) reserve(d Demand, o option) {
	a.free.take(o)
	a.coming.take(o)
	if o.sleeper != "" {
		a.woken[o.sleeper] = true
	} else {
		a.started[d.Endpoint]++
	}
}

// yield looks for workers that make room for the demand, and lets those go that hold what
// it needs. They sleep if they can; with stop they end in any case, since what a sleeper
// keeps may be in the way.
func (a *arbitration) yield(d Demand, stop bool) (o option, ok bool) {
	victims := a.victims(d, stop)
	trial := slices.Clone(a.coming)
	for _, w := range victims {
		trial.give(w, w.keeps(stop))
		if o, ok = a.find(d, trial); ok {
			break
		}
	}
	if !ok {
		return o, false
	}
	for _, w := range victims {
		short := slices.ContainsFunc(w.Devices, func(uuid string) bool {
			return slices.Contains(o.UUIDs, uuid) && a.coming.used(uuid)+o.share > pod.WholeGPU
		})
		if !short {
			continue
		}
		a.coming.give(w, w.keeps(stop))
		a.yielded[w.Pod] = true
		a.out.Yields = append(a.out.Yields, Yield{Pod: w.Pod, Endpoint: w.Endpoint, For: d.Endpoint, Sleep: w.sleeps() && !stop})
	}
	return o, true
}

// sleeps reports whether the worker sleeps when it yields: a busy one cannot.
func (w Worker) sleeps() bool { return w.CanSleep && w.State == Idle }

// keeps is what the worker keeps when it yields, and is stopped for that if stop is true.
func (w Worker) keeps(stop bool) int {
	if stop || !w.sleeps() {
		return 0
	}
	return w.Keeps
}

// victims are the workers that may yield something to the demand, the first to go first.
func (a *arbitration) victims(d Demand, stop bool) []Worker {
	var found []Worker
	for _, w := range a.in.Workers {
		if !a.yielded[w.Pod] && yieldsTo(w, d) && w.Share > w.keeps(stop) {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, firstToGo)
	return found
}

// firstToGo orders workers: of low priority first, idle before what is left of those that
// sleep, these before busy, of the endpoint that has least to do, the longest idle.
func firstToGo(a, b Worker) int {
	busy := func(w Worker) int {
		switch {
		case w.State != Idle:
			return 2
		case w.Asleep:
			return 1
		}
		return 0
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
		var its []placement.Device
		for _, x := range a.in.Devices {
			if x.Used = 0; slices.Contains(w.Devices, x.UUID) {
				its = append(its, x)
			}
		}
		_, ok := placement.Choose(placement.Request{Count: 1, Share: d.Request.Share, Types: d.Request.Types, MinMemoryMB: d.Request.MinMemoryMB, MinCUDA: d.Request.MinCUDA}, its, nil)
		return ok
	}
	for _, w := range a.in.Workers {
		if w.Share > 0 && suits(w) {
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

// give adds what the worker holds, less what it keeps.
func (p pool) give(w Worker, keeps int) {
	for _, uuid := range w.Devices {
		p.change(uuid, keeps-w.Share)
	}
}

// take reserves what was found.
func (p pool) take(o option) {
	for _, uuid := range o.UUIDs {
		p.change(uuid, o.share)
	}
}

// hasRoom reports whether a sleeper could wake now.
func (p pool) hasRoom(s Sleeper) bool {
	return !slices.ContainsFunc(s.Devices, func(uuid string) bool {
		return !slices.ContainsFunc(p, func(d placement.Device) bool {
			return d.UUID == uuid && d.Quarantine == "" && d.Used+s.Share <= pod.WholeGPU
		})
	})
}
