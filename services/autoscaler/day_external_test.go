package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// Somebody else starts and stops the workers: after a while there are as many
// as were wanted.
func TestAnExternalFleetsNumberDoesNotFlapEither(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "max")
		e := ep(elsewhere, bounds(rapid.IntRange(0, most).Draw(t, "min"), most))
		e.ScalerType = rapid.SampledFrom([]string{endpoint.QueueDelay, endpoint.RequestCount}).Draw(t, "scaler")
		e.ScalerValue = rapid.IntRange(1, 10).Draw(t, "value")
		e.IdleTimeout = time.Duration(rapid.IntRange(1, 60).Draw(t, "idle")) * time.Second
		lag := rapid.IntRange(0, 30).Draw(t, "lag")
		d := &day{e: e, now: noon, used: make([]time.Time, most)}
		waiting, wanted := 0, make([]int, 0, 4000)
		for range rapid.IntRange(1, 12).Draw(t, "phases") {
			come, every := rapid.IntRange(0, 6).Draw(t, "rate"), rapid.IntRange(1, 20).Draw(t, "every")
			for i := range rapid.IntRange(1, 300).Draw(t, "seconds") {
				d.now = d.now.Add(time.Second)
				if i%every == 0 {
					waiting += come
				}
				there := 0
				if len(wanted) > lag {
					there = wanted[len(wanted)-1-lag]
				}
				running := min(there, waiting)
				waiting -= running // each takes a second
				d.number(t, waiting, running, there)
				wanted = append(wanted, d.m.wanted)
			}
		}
		for range 30_000 {
			d.now = d.now.Add(time.Second)
			if d.number(t, 0, 0, d.m.wanted); d.m.wanted == e.WorkersMin {
				return
			}
		}
		t.Fatalf("after the night: got %d wanted, want %d", d.m.wanted, e.WorkersMin)
	})
}

// number decides about an external fleet of this size.
func (d *day) number(t *rapid.T, waiting, running, there int) {
	s := sample{queued: waiting, running: running, allRunning: running}
	for i := range there {
		w := member{id: fmt.Sprint(i), state: idle, rested: d.now.Sub(d.used[i])}
		if i < running {
			w.state, w.jobs, w.rested, d.used[i] = busy, 1, 0, d.now
		}
		s.members = append(s.members, w)
	}
	if waiting > 0 {
		s.oldest = time.Duration(1+waiting/max(1, there)) * time.Second
	}
	before := d.m.wanted
	v := decide(d.e, s, d.m, d.now)
	if v.start > 0 || len(v.drain) > 0 {
		t.Fatalf("got %+v, want a number only", v)
	}
	d.m = v.memory
	d.steady(t, v, before)
}

// Of jobs that are shorter than the pause between two looks, most looks see none.
func TestAnOwnersWorkerWithShortJobsIsStillWanted(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep", elsewhere)
	e.IdleTimeout = 30 * time.Second
	l, m := s.leader(), &endpointState{memory: memory{wanted: 1}}
	look := func(rested, later time.Duration) decision {
		t.Helper()
		w := registry.Worker{ID: "own", Endpoint: "ep", State: registry.WorkerIdle, Native: true, Rested: rested}
		if err := s.registry.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		var in fleetSample
		testenv.EventuallyNone(s.t, func() string {
			v, err := l.readView(t.Context())
			if err != nil {
				return err.Error()
			}
			v.now = v.now.Add(later)
			if in = l.sample(t.Context(), v, e, m); len(in.members) != 1 || v.workersOf["ep"][0].Rested != rested {
				return fmt.Sprintf("got %+v, %q, want its last heartbeat", in.members, in.unknown)
			}
			return ""
		})
		return decide(e, in.sample, m.memory, s.queue.Now().Add(later))
	}
	look(0, -time.Minute) // first found idle a minute ago
	if v := look(time.Second, 0); v.wanted != 1 {
		t.Errorf("a second after its last job: got %d wanted, %s, want 1", v.wanted, v.text)
	}
	if v := look(time.Minute, 0); v.wanted != 0 {
		t.Errorf("a minute after its last job: got %d wanted, want 0", v.wanted)
	}
}
