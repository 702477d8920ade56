package arbiter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/services/autoscaler/arbiter"
	"flightline/shared/placement"
	"flightline/shared/pod"
)

const hold, bound = 30 * time.Second, 2 * time.Minute

// gpus are devices of one machine, used as the workers have them.
func gpus(n int, workers ...arbiter.Worker) []placement.Device {
	var all []placement.Device
	for i := range n {
		d := placement.Device{GPU: pod.GPU{UUID: fmt.Sprint("g", i), Name: "L4", MemoryMB: 24576}, Machine: "m"}
		for _, w := range workers {
			if slices.Contains(w.Devices, d.UUID) {
				d.Used += w.Share
			}
		}
		all = append(all, d)
	}
	return all
}

// worker holds GPU i for a minute.
func worker(endpoint string, i int, state arbiter.State, change ...func(*arbiter.Worker)) arbiter.Worker {
	w := arbiter.Worker{
		Pod: fmt.Sprint(endpoint, "-", i), Endpoint: endpoint, Machine: "m", Devices: []string{fmt.Sprint("g", i)}, Share: pod.WholeGPU,
		State: state, Held: time.Minute, MinHold: hold, Rested: 10 * time.Second,
	}
	for _, f := range change {
		f(&w)
	}
	return w
}

func demand(endpoint string, oldest time.Duration, change ...func(*arbiter.Demand)) arbiter.Demand {
	d := arbiter.Demand{Endpoint: endpoint, Workers: 1, Request: placement.Request{Count: 1, Share: pod.WholeGPU}, Oldest: oldest, MaxSwapWait: bound}
	for _, f := range change {
		f(&d)
	}
	return d
}

// text is a decision as "+B:g0 !C-0 -A-1>B ~D-0>B": a start, a wake, a worker that is
// stopped and a worker that is put to sleep.
func text(d arbiter.Decision) string {
	var parts []string
	for _, w := range d.Wakes {
		parts = append(parts, "!"+w.Pod)
	}
	for _, g := range d.Grants {
		parts = append(parts, "+"+g.Endpoint+":"+strings.Join(g.UUIDs, ","))
	}
	for _, y := range d.Yields {
		sign := "-"
		if y.Sleep {
			sign = "~"
		}
		parts = append(parts, sign+y.Pod+">"+y.For)
	}
	return strings.Join(parts, " ")
}

func TestDecide(t *testing.T) {
	young := func(w *arbiter.Worker) { w.Held = 10 * time.Second }
	waiting := func(w *arbiter.Worker) { w.Waiting = 3 }
	kept := func(w *arbiter.Worker) { w.Kept = true }
	rested := func(d time.Duration) func(*arbiter.Worker) { return func(w *arbiter.Worker) { w.Rested = d } }
	of := func(priority int) func(*arbiter.Worker) { return func(w *arbiter.Worker) { w.Priority = priority } }
	wants := func(priority int) func(*arbiter.Demand) { return func(d *arbiter.Demand) { d.Priority = priority } }
	half := func(w *arbiter.Worker) { w.Share, w.Devices = 50, []string{"g0"} }
	replaces := func(d *arbiter.Demand) { d.Replaces = 1 }
	two := func(d *arbiter.Demand) { d.Workers = 2 }
	pair := func(d *arbiter.Demand) { d.Request.Count = 2 }
	share := func(d *arbiter.Demand) { d.Request.Share = 50 }
	needs := func(share int) func(*arbiter.Demand) { return func(d *arbiter.Demand) { d.Request.Share = share } }
	dozes := func(keeps int) func(*arbiter.Worker) {
		return func(w *arbiter.Worker) { w.CanSleep, w.Keeps = true, keeps }
	}
	asleep := func(share int) func(*arbiter.Worker) {
		return func(w *arbiter.Worker) { w.Asleep, w.Share = true, share }
	}
	only := func(d *arbiter.Demand) { d.Wakes = d.Workers }
	wakes := func(pod string, gpu, share int) func(*arbiter.Demand) {
		return func(d *arbiter.Demand) {
			d.Sleepers = append(d.Sleepers, arbiter.Sleeper{Pod: pod, Machine: "m", Devices: []string{fmt.Sprint("g", gpu)}, Share: share})
		}
	}
	type W = []arbiter.Worker
	type D = []arbiter.Demand
	for name, tt := range map[string]struct {
		gpus    int
		workers W
		demands D
		want    string
	}{
		"a free GPU":                            {2, W{worker("A", 0, arbiter.Busy)}, D{demand("B", 0)}, "+B:g1"},
		"an idle worker yields":                 {1, W{worker("A", 0, arbiter.Idle)}, D{demand("B", 0)}, "-A-0>B"},
		"not before minHold":                    {1, W{worker("A", 0, arbiter.Idle, young)}, D{demand("B", 0)}, ""},
		"not while its endpoint has jobs":       {1, W{worker("A", 0, arbiter.Idle, waiting)}, D{demand("B", 59*time.Second)}, ""},
		"not while it is busy":                  {1, W{worker("A", 0, arbiter.Busy)}, D{demand("B", 59*time.Second)}, ""},
		"a busy one does at half the bound":     {1, W{worker("A", 0, arbiter.Busy, waiting)}, D{demand("B", time.Minute)}, "-A-0>B"},
		"but not before minHold":                {1, W{worker("A", 0, arbiter.Busy, young)}, D{demand("B", time.Hour)}, ""},
		"nor while its own jobs waited longer":  {1, W{worker("A", 0, arbiter.Busy, func(w *arbiter.Worker) { w.Waiting, w.Oldest = 1, 2*time.Hour })}, D{demand("B", time.Hour)}, ""},
		"nor before it worked three starts":     {1, W{worker("A", 0, arbiter.Busy, func(w *arbiter.Worker) { w.Startup = 21 * time.Second })}, D{demand("B", time.Hour)}, ""},
		"nor to an endpoint with a worker":      {1, W{worker("A", 0, arbiter.Busy)}, D{demand("B", time.Hour, func(d *arbiter.Demand) { d.Has = 1 })}, ""},
		"not right after its last job":          {1, W{worker("A", 0, arbiter.Idle, rested(time.Second))}, D{demand("B", 0)}, ""},
		"who has made room is before who waits": {1, nil, D{demand("B", 0, replaces), demand("C", 59*time.Second, wants(2))}, "+B:g0"},
		"nor who waits too long, if kept":       {1, nil, D{demand("B", 0, replaces, func(d *arbiter.Demand) { d.Kept = 1 }), demand("C", time.Minute)}, "+B:g0"},
		"who waits too long is before the rest": {1, nil, D{demand("B", 0, replaces), demand("C", time.Minute)}, "+C:g0"},
		"room was made for one, not for two":    {2, nil, D{demand("B", 0, replaces, two), demand("C", 0, wants(2))}, "+B:g0 +C:g1"},
		"of two that replace one is kept":       {2, nil, D{demand("B", 0, two, func(d *arbiter.Demand) { d.Replaces, d.Kept = 2, 1 }), demand("C", time.Minute)}, "+B:g0 +C:g1"},
		"who has none is before who has one":    {1, nil, D{demand("B", 2, func(d *arbiter.Demand) { d.Has = 1 }), demand("C", 1)}, "+C:g0"},
		"nor one that starts":                   {1, W{worker("A", 0, arbiter.Starting)}, D{demand("B", time.Hour)}, ""},
		"nor a kept one":                        {1, W{worker("A", 0, arbiter.Idle, kept)}, D{demand("B", time.Hour)}, ""},
		"nor of the same endpoint":              {1, W{worker("B", 0, arbiter.Idle)}, D{demand("B", time.Hour)}, ""},
		"idle before busy":                      {2, W{worker("A", 0, arbiter.Busy), worker("C", 1, arbiter.Idle)}, D{demand("B", time.Hour)}, "-C-1>B"},
		"the longest idle":                      {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Idle, rested(time.Minute))}, D{demand("B", 0)}, "-C-1>B"},
		"who leaves is enough":                  {2, W{worker("A", 0, arbiter.Leaving), worker("C", 1, arbiter.Idle)}, D{demand("B", 0)}, ""},
		"but only for one":                      {2, W{worker("A", 0, arbiter.Leaving), worker("C", 1, arbiter.Idle)}, D{demand("B", 0), demand("E", 0)}, "-C-1>E"},
		"one yields to one":                     {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Idle)}, D{demand("B", 0)}, "-A-0>B"},
		"two yield to two":                      {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Idle)}, D{demand("B", 0, two)}, "-A-0>B -C-1>B"},
		"two yield to one that needs both":      {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Idle)}, D{demand("B", 0, pair)}, "-A-0>B -C-1>B"},
		"none yields where that is not enough":  {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Busy)}, D{demand("B", 0, pair)}, ""},
		"a free one and one that yields":        {2, W{worker("A", 0, arbiter.Idle)}, D{demand("B", 0, pair)}, "-A-0>B"},
		"what is reserved is given to no other": {2, W{worker("A", 0, arbiter.Idle)}, D{demand("B", 10*time.Second, pair), demand("E", 0)}, "-A-0>B"},
		"who waits longest is first":            {2, W{worker("A", 0, arbiter.Busy)}, D{demand("B", 1), demand("C", 2)}, "+C:g1"},
		"priority is before that":               {2, W{worker("A", 0, arbiter.Busy)}, D{demand("B", 1, wants(1)), demand("C", 2)}, "+B:g1"},
		"but not before who waits too long":     {2, W{worker("A", 0, arbiter.Busy, young)}, D{demand("B", 1, wants(2)), demand("C", time.Minute)}, "+C:g1"},
		"the lower priority yields":             {2, W{worker("A", 0, arbiter.Idle), worker("C", 1, arbiter.Idle, of(-1))}, D{demand("B", 0)}, "-C-1>B"},
		"a higher one does not":                 {1, W{worker("A", 0, arbiter.Idle, of(1))}, D{demand("B", 0)}, ""},
		"unless who waits does too long":        {1, W{worker("A", 0, arbiter.Idle, of(2))}, D{demand("B", time.Minute)}, "-A-0>B"},
		"half a card is left":                   {1, W{worker("A", 0, arbiter.Busy, half)}, D{demand("B", 0, share)}, "+B:g0"},
		"one of two that share yields":          {1, W{worker("A", 0, arbiter.Idle, half), worker("C", 1, arbiter.Idle, half)}, D{demand("B", 0, share)}, "-A-0>B"},
		"both do for the whole card":            {1, W{worker("A", 0, arbiter.Idle, half), worker("C", 1, arbiter.Idle, half)}, D{demand("B", 0)}, "-A-0>B -C-1>B"},
		"no worker, no GPU":                     {0, nil, D{demand("B", 0)}, ""},
		"an idle worker that can sleeps":        {1, W{worker("A", 0, arbiter.Idle, dozes(5))}, D{demand("B", 0, needs(95))}, "~A-0>B"},
		"a busy one does not":                   {1, W{worker("A", 0, arbiter.Busy, waiting, dozes(5))}, D{demand("B", time.Minute, needs(95))}, "-A-0>B"},
		"it is stopped if it keeps too much":    {1, W{worker("A", 0, arbiter.Idle, dozes(5))}, D{demand("B", 0)}, "-A-0>B"},
		"one falls asleep":                      {1, W{worker("A", 0, arbiter.Leaving, dozes(5))}, D{demand("B", 0, needs(95))}, ""},
		"what sleeps is no obstacle":            {1, W{worker("A", 0, arbiter.Idle, asleep(5))}, D{demand("B", 0, needs(95))}, "+B:g0"},
		"what it keeps is":                      {1, W{worker("A", 0, arbiter.Idle, asleep(5))}, D{demand("B", 0)}, "-A-0>B"},
		"sleepers that keep nothing stay":       {1, W{worker("A", 0, arbiter.Idle, asleep(0)), worker("C", 0, arbiter.Idle, dozes(0))}, D{demand("B", 0)}, "~C-0>B"},
		"an idle one is before what is kept":    {1, W{worker("A", 0, arbiter.Idle, asleep(5), rested(time.Hour)), worker("C", 0, arbiter.Idle, dozes(5), func(w *arbiter.Worker) { w.Share, w.Keeps = 90, 5 })}, D{demand("B", 0, needs(90))}, "~C-0>B"},
		"a sleeper wakes on its card":           {2, W{worker("B", 0, arbiter.Idle, asleep(5))}, D{demand("B", 0, wakes("B-0", 0, 95))}, "!B-0"},
		"one that may only wake is not started": {2, W{worker("B", 0, arbiter.Idle, asleep(5)), worker("A", 0, arbiter.Busy, half)}, D{demand("B", 0, wakes("B-0", 0, 95), only)}, ""},
		"its card is taken, another is free":    {2, W{worker("B", 0, arbiter.Idle, asleep(0)), worker("A", 0, arbiter.Busy)}, D{demand("B", 0, wakes("B-0", 0, 100))}, "+B:g1"},
		"models take turns on a card":           {1, W{worker("B", 0, arbiter.Idle, asleep(0)), worker("A", 0, arbiter.Idle, dozes(0))}, D{demand("B", 0, wakes("B-0", 0, 100))}, "~A-0>B"},
		"a card is kept for a sleeper":          {1, W{worker("B", 0, arbiter.Idle, asleep(0)), worker("A", 0, arbiter.Leaving)}, D{demand("B", 2, wakes("B-0", 0, 100)), demand("C", 1)}, ""},
		"two of it: one wakes, one starts":      {2, W{worker("B", 0, arbiter.Idle, asleep(0))}, D{demand("B", 0, two, wakes("B-0", 0, 100))}, "!B-0 +B:g1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := arbiter.Decide(arbiter.Input{Devices: gpus(tt.gpus, tt.workers...), Workers: tt.workers, Demands: tt.demands})
			if text(got) != tt.want {
				t.Errorf("got %q, want %q", text(got), tt.want)
			}
		})
	}
}

func TestWaitsSayWhoHoldsAndUntilWhen(t *testing.T) {
	for name, tt := range map[string]struct {
		w      arbiter.Worker
		oldest time.Duration
		coming bool
		until  time.Duration
		by     int
	}{
		"idle, not held for long": {worker("A", 0, arbiter.Idle, func(w *arbiter.Worker) { w.Held = 10 * time.Second }), 0, false, 20 * time.Second, 1},
		"busy":                    {worker("A", 0, arbiter.Busy), 15 * time.Second, false, 45 * time.Second, 1},
		"never":                   {worker("A", 0, arbiter.Busy, func(w *arbiter.Worker) { w.Kept = true }), 0, false, 0, 1},
		"it yields":               {worker("A", 0, arbiter.Idle), 0, true, 0, 0},
		"it leaves":               {worker("A", 0, arbiter.Leaving), 0, true, 0, 0},
	} {
		got := arbiter.Decide(arbiter.Input{Devices: gpus(1, tt.w), Workers: []arbiter.Worker{tt.w}, Demands: []arbiter.Demand{demand("B", tt.oldest)}}).Waits["B"]
		if got.Coming != tt.coming || got.Until != tt.until || len(got.By) != tt.by {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	free := arbiter.Decide(arbiter.Input{Devices: gpus(1), Demands: []arbiter.Demand{demand("B", 0)}})
	if len(free.Waits) != 0 {
		t.Errorf("got %+v, want no wait", free.Waits)
	}
}
