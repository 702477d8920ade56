package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

// day is an endpoint with a simulated queue and fleet.
type day struct {
	e       endpoint.Endpoint
	m       memory
	now     time.Time
	queue   []time.Time // when those that wait came
	low     int         // jobs of low priority that wait
	members []member
	ends    map[string]time.Time // of the job that a busy one has
	lowly   map[string]bool      // whose job has low priority
	made    int
	changes []change    // of what was started and stopped
	used    []time.Time // when workers of somebody else last had a job
	blind   bool        // nothing can be counted now
	broken  bool        // who starts fails
	// failures in a row, and when the last was.
	failures int
	failed   time.Time
	drains   time.Duration // how long a drained one takes to leave
	lost     []lostJob     // whose workers were killed, the first one first
}

type change struct {
	at time.Time
	up bool
}

// work lets workers get ready or fail, take and end jobs, and leave.
func (d *day) work(takes, startup time.Duration) {
	var there []member
	for _, w := range d.members {
		switch {
		case w.state == starting && d.now.Sub(w.since) >= startup && d.broken:
			d.failures, d.failed, d.changes = d.failures+1, d.now, nil // nobody decided that
			continue
		case w.state == starting && d.now.Sub(w.since) >= startup:
			w.state, w.since, d.failures = idle, d.now, 0
		case w.state == busy && !d.ends[w.id].After(d.now):
			w.state, w.since, w.jobs = idle, d.now, 0
		case w.state == draining && !w.locked && d.now.Sub(w.since) >= d.drains:
			continue
		}
		if w.state == idle && d.take(w.id) {
			w.state, w.since, w.jobs = busy, d.now, 1
			d.ends[w.id] = d.now.Add(takes)
		}
		there = append(there, w)
	}
	d.members = there
}

// take hands a job to the worker: what is handed out again comes first.
func (d *day) take(worker string) bool {
	switch {
	case len(d.lost) > 0 && d.now.Sub(d.lost[0].since) >= d.e.Lease:
		d.lowly[worker], d.lost = d.lost[0].low, d.lost[1:]
	case len(d.queue) > 0:
		d.lowly[worker], d.queue = false, d.queue[1:]
	case d.low > 0:
		d.lowly[worker], d.low = true, d.low-1
	default:
		return false
	}
	return true
}

// sample is what the autoscaler sees.
func (d *day) sample() sample {
	s := sample{
		queued: len(d.queue), queuedLow: d.low, machines: 1, members: d.members, allRunning: count(d.members, busy),
		failures: d.failures, lastFailure: d.failed, orphans: d.orphans(),
	}
	s.allRunning, s.running = s.allRunning+len(d.lost), s.running+d.lostNormal()
	for i, w := range d.members {
		d.members[i].rested = d.now.Sub(w.since)
		if w.state == busy && !d.lowly[w.id] {
			s.running++
		}
	}
	if len(d.queue) > 0 {
		s.oldest = d.now.Sub(d.queue[0])
	}
	if d.blind {
		s = sample{unknown: "no answer", members: d.members}
	}
	return s
}

// step lets a second pass: jobs come and end, workers get ready, and the
// autoscaler decides.
func (d *day) step(t *rapid.T, come int, takes, startup time.Duration) {
	d.now = d.now.Add(time.Second)
	for range come {
		d.queue = append(d.queue, d.now)
	}
	d.work(takes, startup)
	before := d.m.wanted
	v := decide(d.e, d.sample(), d.m, d.now)
	if d.blind && (v.start > 0 || len(v.drain) > 0 || !v.hold || v.wanted != before) {
		t.Fatalf("a number is unknown: got %+v, want all as it was", v)
	}
	d.m = v.memory
	d.check(t, v)
	for range v.start {
		d.made++
		d.members = append(d.members, member{id: fmt.Sprint(d.made), since: d.now})
	}
	for i := range d.members {
		if w := &d.members[i]; slices.Contains(v.drain, w.id) {
			w.state, w.since = draining, d.now
		}
	}
}

// check fails unless the decision keeps what is promised.
func (d *day) check(t *rapid.T, v decision) {
	alive := countAlive(d.members)
	waits := v.reason == registry.ScalingBackoff || v.reason == registry.ScalingLeaving || d.failures > 0 || len(d.members) > alive
	if n := alive + v.start - len(v.drain); !d.blind && (n > v.wanted || n < v.wanted && !waits) {
		t.Fatalf("fleet: got %d, want the wanted %d: %+v", n, v.wanted, v)
	}
	if all := len(d.members) + v.start; v.start > 0 && all > d.e.WorkersMax {
		t.Fatalf("got %d workers, those included that leave, want %d at most", all, d.e.WorkersMax)
	}
	if !d.blind && (v.wanted < d.e.WorkersMin || v.wanted > max(alive, d.e.WorkersMax)) {
		t.Fatalf("wanted: got %d, want %d to %d", v.wanted, d.e.WorkersMin, d.e.WorkersMax)
	}
	for _, w := range d.members {
		stoppable := w.state == idle || w.state == starting && alive > d.e.WorkersMax
		if slices.Contains(v.drain, w.id) && (!stoppable || w.locked) {
			t.Fatalf("stopped worker %+v: it is neither idle nor starts above workersMax, or is locked", w)
		}
	}
	if v.start > 0 || len(v.drain) > 0 {
		d.changes = append(d.changes, change{d.now, v.start > 0})
	}
	d.calm(t)
}

// steady fails if the number leaves its bounds, or flaps.
func (d *day) steady(t *rapid.T, v decision, before int) {
	if v.wanted < d.e.WorkersMin || v.wanted > d.e.WorkersMax {
		t.Fatalf("wanted: got %d, want %d to %d", v.wanted, d.e.WorkersMin, d.e.WorkersMax)
	}
	if v.wanted != before {
		d.changes = append(d.changes, change{d.now, v.wanted > before})
	}
	d.calm(t)
}

// calm fails if the fleet flaps.
func (d *day) calm(t *rapid.T) {
	reversals := 0
	for i := len(d.changes) - 1; i > 0 && d.now.Sub(d.changes[i-1].at) < d.e.IdleTimeout; i-- {
		if d.changes[i].up != d.changes[i-1].up {
			reversals++
		}
	}
	if reversals > 1 {
		t.Fatalf("within %s: got %d reversals, want 1 at most: %v", d.e.IdleTimeout, reversals, d.changes)
	}
}

// change is what people and luck do between two phases: other bounds, locks,
// low-priority jobs, killed workers, a program that no longer starts, an outage.
func (d *day) change(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "bounds") == 0 {
		most := rapid.IntRange(0, 20).Draw(t, "new max")
		d.e.WorkersMin, d.e.WorkersMax = rapid.IntRange(0, most).Draw(t, "new min"), most
		d.changes = nil // who asks for it gets it at once
		d.blind = false
		d.m.wanted = max(d.m.wanted, d.e.WorkersMin)
	}
	for i := range d.members {
		d.members[i].locked = rapid.IntRange(0, 9).Draw(t, "lock") == 0
	}
	for range rapid.IntRange(0, 3).Draw(t, "killed") {
		d.kill()
	}
	d.low += rapid.IntRange(0, 20).Draw(t, "low")
	d.broken = rapid.IntRange(0, 5).Draw(t, "broken") == 0
	d.blind = len(d.members) > 0 && rapid.IntRange(0, 5).Draw(t, "outage") == 0
}

func TestADaysLoadBreaksNoBoundAndCausesNoFlapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "max")
		e := ep(bounds(rapid.IntRange(0, most).Draw(t, "min"), most))
		e.ScalerType = rapid.SampledFrom([]string{endpoint.QueueDelay, endpoint.RequestCount}).Draw(t, "scaler")
		e.ScalerValue = rapid.IntRange(1, 10).Draw(t, "value")
		e.IdleTimeout = time.Duration(rapid.IntRange(1, 60).Draw(t, "idle")) * time.Second
		takes := time.Duration(rapid.IntRange(1, 40).Draw(t, "takes")) * time.Second
		startup := time.Duration(rapid.IntRange(0, 30).Draw(t, "startup")) * time.Second
		d := &day{e: e, now: noon, ends: map[string]time.Time{}, lowly: map[string]bool{}}
		d.drains = time.Duration(rapid.IntRange(0, 60).Draw(t, "drains")) * time.Second
		for range rapid.IntRange(1, 12).Draw(t, "phases") {
			rate := rapid.IntRange(0, 6).Draw(t, "rate")
			every := rapid.IntRange(1, 20).Draw(t, "every")
			d.change(t)
			for i := range rapid.IntRange(1, 300).Draw(t, "seconds") {
				come := 0
				if i%every == 0 {
					come = rate
				}
				d.step(t, come, takes, startup)
			}
		}
		d.night(t, startup)
	})
}

// night kills all busy workers, and fails unless what is left is done all the
// same, and the fleet is its minimum again.
func (d *day) night(t *rapid.T, startup time.Duration) {
	d.blind, d.broken = false, false
	for i := range d.members {
		d.members[i].locked = false
	}
	if d.e.WorkersMax == 0 { // else nobody would take what is left
		d.e.WorkersMax, d.changes = 1, nil
	}
	for range d.members {
		d.kill()
	}
	for range 30_000 {
		d.step(t, 0, time.Second, startup)
		if alive := count(d.members, idle); len(d.queue)+d.lostNormal() == 0 && alive == d.e.WorkersMin && len(d.members) == alive {
			return
		}
	}
	t.Fatalf("after the night: got %d jobs, %+v lost and %d workers, want none and %d", len(d.queue), d.lost, len(d.members), d.e.WorkersMin)
}
