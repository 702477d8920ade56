package arbiter_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/placement"
	"flightline/shared/pod"
)

var update = flag.Bool("update", false, "write the table of the simulated day into the document")

// The day: two GPUs, six endpoints, each with a job every few minutes and bursts. A start
// takes 20 to 60 s, a job 4 to 12 s on average.
const (
	dayGPUs     = 2
	dayLength   = 24 * time.Hour
	tick        = time.Second
	growAfter   = 30 * time.Second // scalerValue
	idleTimeout = 5 * time.Second
	warmTimeout = 10 * time.Minute // where the arbiter lets idle workers yield
)

type dayEndpoint struct {
	id                string
	start, work, each time.Duration
}

func dayEndpoints() []dayEndpoint {
	var all []dayEndpoint
	for i, work := range []int{4, 6, 8, 5, 10, 12} {
		all = append(all, dayEndpoint{
			id: string(rune('A' + i)), start: time.Duration(20+8*i) * time.Second, work: time.Duration(work) * time.Second,
			each: time.Duration(4+i%3) * time.Minute,
		})
	}
	return all
}

// dayJob is a job of the trace.
type dayJob struct {
	endpoint int
	at, work time.Duration
}

// trace is the same each time: the generator and its seed are fixed.
func trace() []dayJob {
	r := rand.New(rand.NewPCG(18, 2026))
	exp := func(mean time.Duration) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
	var jobs []dayJob
	for i, e := range dayEndpoints() {
		add := func(at time.Duration) {
			if at < dayLength {
				jobs = append(jobs, dayJob{i, at.Truncate(tick), max(tick, exp(e.work).Truncate(tick))})
			}
		}
		for at := exp(e.each); at < dayLength; at += exp(e.each) {
			add(at)
		}
		for at := exp(40 * time.Minute); at < dayLength; at += exp(40 * time.Minute) {
			within := at
			for range 10 + r.IntN(30) {
				within += exp(5 * time.Second)
				add(within)
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b dayJob) int { return cmp.Compare(a.at, b.at) })
	return jobs
}

// dayWorker has one GPU.
type dayWorker struct {
	endpoint, gpu       int
	born, ready, until  time.Duration // until its job ends
	idle                time.Duration // since when
	busy, leaving, only bool          // only: it waits for the job that it was started for
	job                 dayJob
}

// day is a policy at work.
type day struct {
	now       time.Duration
	endpoints []dayEndpoint
	queues    [][]dayJob
	order     []dayJob // for first come, first served
	workers   []*dayWorker
	waits     []time.Duration
	starts    int
	worked    time.Duration
}

type result struct {
	swaps, busy       float64
	p50, p95, longest time.Duration
}

// play runs the trace under a policy, which is asked every second.
func play(policy func(*day)) result {
	d := &day{endpoints: dayEndpoints()}
	d.queues = make([][]dayJob, len(d.endpoints))
	jobs := trace()
	total := len(jobs)
	for ; len(d.waits) < total; d.now += tick {
		for len(jobs) > 0 && jobs[0].at <= d.now {
			d.queues[jobs[0].endpoint] = append(d.queues[jobs[0].endpoint], jobs[0])
			d.order, jobs = append(d.order, jobs[0]), jobs[1:]
		}
		for _, w := range d.workers {
			if w.busy && w.until <= d.now {
				w.busy, w.idle = false, d.now
			}
		}
		d.workers = slices.DeleteFunc(d.workers, func(w *dayWorker) bool { return w.leaving && !w.busy })
		policy(d)
	}
	slices.Sort(d.waits)
	at := func(q float64) time.Duration { return d.waits[int(q*float64(total-1))] }
	return result{float64(d.starts) / d.now.Hours(), float64(d.worked) / float64(d.now*dayGPUs), at(0.5), at(0.95), at(1)}
}

func (d *day) run(w *dayWorker, j dayJob) {
	w.busy, w.until, w.only = true, d.now+j.work, false
	d.waits, d.worked = append(d.waits, d.now-j.at), d.worked+j.work
}

func (d *day) begin(endpoint, gpu int) *dayWorker {
	w := &dayWorker{endpoint: endpoint, gpu: gpu, born: d.now, ready: d.now + d.endpoints[endpoint].start}
	w.idle = w.ready
	d.workers, d.starts = append(d.workers, w), d.starts+1
	return w
}

// serve gives the jobs of each endpoint to its workers.
func (d *day) serve() {
	for _, w := range d.workers {
		if q := d.queues[w.endpoint]; !w.busy && !w.leaving && w.ready <= d.now && len(q) > 0 {
			d.run(w, q[0])
			d.queues[w.endpoint] = q[1:]
		}
	}
}

func (d *day) at(gpu int) *dayWorker {
	for _, w := range d.workers {
		if w.gpu == gpu {
			return w
		}
	}
	return nil
}

func (d *day) remove(w *dayWorker) {
	d.workers = slices.DeleteFunc(d.workers, func(x *dayWorker) bool { return x == w })
}

func (d *day) oldest(endpoint int) time.Duration {
	if q := d.queues[endpoint]; len(q) > 0 {
		return d.now - q[0].at
	}
	return -1
}

// firstCome takes the jobs in the order in which they came, whatever a swap costs.
func firstCome(d *day) {
	for _, w := range d.workers {
		if w.only && w.ready <= d.now {
			d.run(w, w.job)
		}
	}
	for len(d.order) > 0 {
		j := d.order[0]
		var same, other *dayWorker
		free := -1
		for gpu := range dayGPUs {
			w := d.at(gpu)
			switch {
			case w == nil:
				free = gpu
			case w.busy || w.only:
			case w.endpoint == j.endpoint:
				same = w
			case other == nil || w.idle < other.idle:
				other = w
			}
		}
		switch {
		case same != nil:
			d.run(same, j)
		case free < 0 && other == nil:
			return
		default:
			if free < 0 {
				free = other.gpu
				d.remove(other)
			}
			w := d.begin(j.endpoint, free)
			w.only, w.job = true, j
		}
		d.order = d.order[1:]
	}
}

// fixed gives each endpoint a GPU of its own, which it shares with two others.
func fixed(d *day) {
	d.serve()
	for gpu := range dayGPUs {
		w := d.at(gpu)
		if w != nil && (w.busy || w.ready > d.now || len(d.queues[w.endpoint]) > 0) {
			continue
		}
		next := -1
		for e := range d.endpoints {
			if e%dayGPUs == gpu && d.oldest(e) >= 0 && (next < 0 || d.oldest(e) > d.oldest(next)) {
				next = e
			}
		}
		if next >= 0 {
			if w != nil {
				d.remove(w)
			}
			d.begin(next, gpu)
		}
	}
}

// demands are as the autoscaler's: one for an endpoint without workers, a second one after a while.
func (d *day) demands() []arbiter.Demand {
	var all []arbiter.Demand
	for e := range d.endpoints {
		alive := 0
		for _, w := range d.workers {
			if w.endpoint == e && !w.leaving {
				alive++
			}
		}
		if oldest := d.oldest(e); oldest >= 0 && (alive == 0 || alive < dayGPUs && oldest > growAfter && len(d.queues[e]) > 2) {
			all = append(all, arbiter.Demand{
				Endpoint: d.endpoints[e].id, Workers: 1, Has: alive, Request: placement.Request{Count: 1, Share: pod.WholeGPU},
				Oldest: oldest, MaxSwapWait: bound,
			})
		}
	}
	return all
}

// rest ends workers that were idle for that long.
func (d *day) rest(timeout time.Duration) {
	for _, w := range d.workers {
		if !w.busy && w.ready <= d.now && d.now-w.idle >= timeout {
			w.leaving = true
		}
	}
}

// idleOnly is the autoscaler without an arbiter: a GPU is free when its worker has idled.
func idleOnly(d *day) {
	d.serve()
	d.rest(idleTimeout)
	demands := d.demands()
	slices.SortStableFunc(demands, func(a, b arbiter.Demand) int { return cmp.Compare(b.Oldest, a.Oldest) })
	for gpu := range dayGPUs {
		if d.at(gpu) == nil && len(demands) > 0 {
			d.begin(int(demands[0].Endpoint[0]-'A'), gpu)
			demands = demands[1:]
		}
	}
}

// arbitrated lets Decide say who yields.
func arbitrated(d *day) {
	d.serve()
	d.rest(warmTimeout)
	var workers []arbiter.Worker
	for _, w := range d.workers {
		x := arbiter.Worker{
			Pod: fmt.Sprint("pod-", w.gpu), Endpoint: d.endpoints[w.endpoint].id, Machine: "m", Devices: []string{fmt.Sprint("g", w.gpu)}, Share: pod.WholeGPU,
			State: arbiter.Idle, Held: d.now - w.ready, MinHold: hold, Startup: w.ready - w.born, Rested: d.now - w.idle, Waiting: len(d.queues[w.endpoint]), Oldest: max(0, d.oldest(w.endpoint)),
		}
		switch {
		case w.leaving:
			x.State = arbiter.Leaving
		case w.ready > d.now:
			x.State = arbiter.Starting
		case w.busy:
			x.State = arbiter.Busy
		}
		workers = append(workers, x)
	}
	out := arbiter.Decide(arbiter.Input{Devices: gpus(dayGPUs, workers...), Workers: workers, Demands: d.demands()})
	for _, y := range out.Yields {
		for _, w := range d.workers {
			if fmt.Sprint("pod-", w.gpu) == y.Pod {
				w.leaving = true
			}
		}
	}
	for _, g := range out.Grants {
		d.begin(int(g.Endpoint[0]-'A'), int(g.UUIDs[0][1]-'0'))
	}
}

const dayFile = "../../../docs/gpus.md"

func TestTheSimulatedDay(t *testing.T) {
	table := "| | swaps in an hour | wait, p50 | wait, p95 | longest wait | GPUs busy |\n|---|---|---|---|---|---|\n"
	results := map[string]result{}
	for _, p := range []struct {
		name   string
		policy func(*day)
	}{
		{"first come, first served", firstCome}, {"each endpoint on its GPU", fixed}, {"idle timeout of 5 s alone", idleOnly}, {"the arbiter", arbitrated},
	} {
		r := play(p.policy)
		results[p.name] = r
		table += fmt.Sprintf("| %s | %.1f | %s | %s | %s | %.0f %% |\n", p.name, r.swaps, r.p50, r.p95, r.longest, r.busy*100)
	}
	t.Logf("%d jobs\n%s", len(trace()), table)
	ours, theirs := results["the arbiter"], results["first come, first served"]
	if ours.p95*2 > theirs.p95 || ours.swaps*2 > theirs.swaps {
		t.Errorf("got p95 %s and %.1f swaps/h, want at most half of %s and %.1f", ours.p95, ours.swaps, theirs.p95, theirs.swaps)
	}
	text, err := os.ReadFile(dayFile)
	if err != nil {
		t.Fatal(err)
	}
	const from, to = "<!-- day: TestTheSimulatedDay -update rewrites it -->\n\n", "\n<!-- end of day -->"
	before, rest, found := strings.Cut(string(text), from)
	_, after, closed := strings.Cut(rest, to)
	want := before + from + table + to + after
	switch {
	case !found || !closed:
		t.Fatalf("%s has no place for the table", dayFile)
	case *update:
		err = os.WriteFile(dayFile, []byte(want), 0o600)
	case want != string(text):
		t.Errorf("%s has another table; -update rewrites it", dayFile)
	}
	if err != nil {
		t.Fatal(err)
	}
}
