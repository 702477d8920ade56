package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/ratelimit"
)

func TestGate(t *testing.T) {
	type step struct {
		after   time.Duration
		leave   bool // before the request
		refused ratelimit.Refusal
		left    int
		reset   time.Duration
	}
	tests := map[string]struct {
		bounds ratelimit.Bounds
		steps  []step
	}{
		"no bounds": {ratelimit.Bounds{}, []step{{}, {}, {}}},
		"rate": {ratelimit.Bounds{Requests: 2}, []step{
			{left: 1, reset: ratelimit.Span},
			{after: time.Second, left: 0, reset: 9 * time.Second},
			{after: time.Second, refused: ratelimit.ByRate, reset: 8 * time.Second},
			{after: 8 * time.Second, left: 0, reset: time.Second}, // the first has left, the refused never was
			{after: time.Second - 1, refused: ratelimit.ByRate, reset: 1},
		}},
		"concurrent": {ratelimit.Bounds{Concurrent: 2}, []step{
			{},
			{},
			{after: time.Hour, refused: ratelimit.ByConcurrent},
			{leave: true},
			{refused: ratelimit.ByConcurrent},
		}},
		"refused by one bound, not counted by the other": {ratelimit.Bounds{Requests: 3, Concurrent: 1}, []step{
			{left: 2, reset: ratelimit.Span},
			{refused: ratelimit.ByConcurrent, left: 2, reset: ratelimit.Span},
			{refused: ratelimit.ByConcurrent, left: 2, reset: ratelimit.Span},
			{leave: true, left: 1, reset: ratelimit.Span},
			{leave: true, left: 0, reset: ratelimit.Span},
			{leave: true, refused: ratelimit.ByRate, reset: ratelimit.Span},
			{after: ratelimit.Span, left: 2, reset: ratelimit.Span},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var gate ratelimit.Gate
			var c clock
			for i, s := range test.steps {
				c.now += s.after
				if s.leave {
					gate.Leave()
				}
				want := ratelimit.Verdict{Refused: s.refused, Left: s.left, Reset: s.reset}
				if got := gate.Enter(c.read, test.bounds); got != want {
					t.Errorf("step %d: got %+v, want %+v", i, got, want)
				}
			}
		})
	}
}

func TestIdle(t *testing.T) {
	var gate ratelimit.Gate
	var c clock
	if !gate.Idle(0) {
		t.Error("a new gate: got busy")
	}
	gate.Enter(c.read, ratelimit.Bounds{Requests: 5})
	if gate.Idle(time.Hour) {
		t.Error("with a request inside: got idle")
	}
	gate.Leave()
	if gate.Idle(ratelimit.Span-1) || !gate.Idle(ratelimit.Span) {
		t.Error("want idle when the window is empty, not before")
	}
}

// Under -race: however many come at once, the bounds hold.
func TestGateUnderMany(t *testing.T) {
	const many, each = 16, 500
	bounds := ratelimit.Bounds{Requests: 2000, Concurrent: 5}
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }
	var gate ratelimit.Gate
	var inside, most, passed atomic.Int64
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			for range each {
				if gate.Enter(clock, bounds).Refused != ratelimit.Passed {
					continue
				}
				passed.Add(1)
				now := inside.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				inside.Add(-1)
				gate.Leave()
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took >= ratelimit.Span {
		t.Skipf("took %s: more than one window", took)
	}
	if got := passed.Load(); got > int64(bounds.Requests) || got == 0 {
		t.Errorf("got %d passed, want 1 to %d", got, bounds.Requests)
	}
	if got := most.Load(); got > int64(bounds.Concurrent) {
		t.Errorf("got %d at once, want at most %d", got, bounds.Concurrent)
	}
}

func BenchmarkGate(b *testing.B) {
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }
	bounds := ratelimit.Bounds{Requests: 1 << 30, Concurrent: 400}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		var gate ratelimit.Gate
		for b.Loop() {
			gate.Enter(clock, bounds)
			gate.Leave()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		var gate ratelimit.Gate
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				gate.Enter(clock, bounds)
				gate.Leave()
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		var gate ratelimit.Gate
		full := ratelimit.Bounds{Requests: 1}
		gate.Enter(clock, full)
		for b.Loop() {
			gate.Enter(clock, full)
		}
	})
}
