package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flightline/shared/endpoint"
)

// day is an endpoint with a simulated queue and fleet.
type day struct {
	e       endpoint.Endpoint
	m       memory
	now     time.Time
	queue   []time.Time // when those that wait came
	members []member
	ends    map[string]time.Time // of the job that a busy one has
	made    int
	changes []change // of the wanted number
}

type change struct {
	at time.Time
	up bool
}

// step lets a second pass: jobs come and end, workers get ready, and the
// autoscaler decides.
func (d *day) step(t *rapid.T, come int, takes, startup time.Duration) {
	d.now = d.now.Add(time.Second)
	for range come {
		d.queue = append(d.queue, d.now)
	}
	for i := range d.members {
		w := &d.members[i]
		switch {
		case w.state == starting && d.now.Sub(w.since) >= startup:
			w.state, w.since = idle, d.now
		case w.state == busy && !d.ends[w.id].After(d.now):
			w.state, w.since, w.jobs = idle, d.now, 0
		}
		if w.state == idle && len(d.queue) > 0 {
			w.state, w.since, w.jobs = busy, d.now, 1
			d.ends[w.id] = d.now.Add(takes)
			d.queue = d.queue[1:]
		}
	}
	s := sample{queued: len(d.queue), machines: 1, members: d.members, running: count(d.members, busy)}
	s.allRunning = s.running
	if len(d.queue) > 0 {
		s.oldest = d.now.Sub(d.queue[0])
	}
	before := d.m.wanted
	v := decide(d.e, s, d.m, d.now)
	d.m = v.memory
	d.check(t, v, before)
	for range v.start {
		d.made++
		d.members = append(d.members, member{id: fmt.Sprint(d.made), since: d.now})
	}
	for _, id := range v.drain {
		for i, w := range d.members {
			if w.id == id {
				d.members = append(d.members[:i:i], d.members[i+1:]...)
				break
			}
		}
	}
}

// check fails unless the decision keeps what is promised.
func (d *day) check(t *rapid.T, v verdict, before int) {
	if v.wanted < d.e.WorkersMin || v.wanted > d.e.WorkersMax {
		t.Fatalf("wanted: got %d, want %d to %d", v.wanted, d.e.WorkersMin, d.e.WorkersMax)
	}
	if n := len(d.members) + v.start - len(v.drain); n != v.wanted {
		t.Fatalf("fleet: got %d, want the wanted %d", n, v.wanted)
	}
	for _, id := range v.drain {
		for _, w := range d.members {
			if w.id == id && w.state != idle {
				t.Fatalf("stopped worker %s: it is not idle", id)
			}
		}
	}
	if v.wanted != before {
		d.changes = append(d.changes, change{d.now, v.wanted > before})
	}
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

func TestADaysLoadBreaksNoBoundAndCausesNoFlapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "max")
		e := ep(bounds(rapid.IntRange(0, most).Draw(t, "min"), most))
		e.ScalerType = rapid.SampledFrom([]string{endpoint.QueueDelay, endpoint.RequestCount}).Draw(t, "scaler")
		e.ScalerValue = rapid.IntRange(1, 10).Draw(t, "value")
		e.IdleTimeout = time.Duration(rapid.IntRange(1, 60).Draw(t, "idle")) * time.Second
		takes := time.Duration(rapid.IntRange(1, 40).Draw(t, "takes")) * time.Second
		startup := time.Duration(rapid.IntRange(0, 30).Draw(t, "startup")) * time.Second
		d := &day{e: e, now: noon, ends: map[string]time.Time{}}
		phases := rapid.IntRange(1, 12).Draw(t, "phases")
		for range phases {
			rate := rapid.IntRange(0, 6).Draw(t, "rate")
			every := rapid.IntRange(1, 20).Draw(t, "every")
			for i := range rapid.IntRange(1, 300).Draw(t, "seconds") {
				come := 0
				if i%every == 0 {
					come = rate
				}
				d.step(t, come, takes, startup)
			}
		}
		// The night: what is left is short, and the fleet is its minimum again.
		for range 30_000 {
			if d.step(t, 0, time.Second, startup); len(d.queue) == 0 && len(d.members) == e.WorkersMin && count(d.members, busy, starting) == 0 {
				return
			}
		}
		t.Fatalf("after the night: got %d jobs and %d workers, want none and %d", len(d.queue), len(d.members), e.WorkersMin)
	})
}
