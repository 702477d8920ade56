package ratelimit_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"flightline/shared/ratelimit"
)

// clock is a time that tests move by hand.
type clock struct{ now time.Duration }

func (c *clock) read() time.Duration { return c.now }

// In no window of 10 s, wherever it begins, more requests pass than the limit;
// and each refused request would have exceeded it.
func TestAnyWindowHasAtMostTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 40).Draw(t, "limit")
		gaps := rapid.SliceOfN(rapid.Int64Range(0, 3000), 0, 300).Draw(t, "gaps in ms")
		var gate ratelimit.Gate
		var c clock
		var passed []time.Duration
		for _, gap := range gaps {
			c.now += time.Duration(gap) * time.Millisecond
			v := gate.Enter(c.read, ratelimit.Bounds{Requests: bound})
			within := since(passed, c.now-ratelimit.Span)
			if refused := v.Refused != ratelimit.Passed; refused != (within >= bound) {
				t.Fatalf("at %s with %d of %d in the window: refused %v", c.now, within, bound, refused)
			}
			if v.Refused == ratelimit.Passed {
				passed = append(passed, c.now)
				within++
			}
			if want := bound - within; v.Left != want {
				t.Fatalf("at %s: got %d left, want %d", c.now, v.Left, want)
			}
		}
		for _, from := range passed {
			if got := since(passed, from-1) - since(passed, from+ratelimit.Span-1); got > bound {
				t.Fatalf("from %s on: got %d, want at most %d", from, got, bound)
			}
		}
	})
}

// since counts the times after from.
func since(times []time.Duration, from time.Duration) (n int) {
	for _, at := range times {
		if at > from {
			n++
		}
	}
	return n
}

// Whatever the verdict says of the time to wait is exact: a nanosecond earlier
// is too early.
func TestResetIsWhenOneMayPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.IntRange(1, 40).Draw(t, "limit before")
		after := rapid.IntRange(1, 40).Draw(t, "limit after")
		var gate ratelimit.Gate
		var c clock
		for range rapid.IntRange(1, 80).Draw(t, "requests") {
			c.now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap"))
			gate.Enter(c.read, ratelimit.Bounds{Requests: before})
		}
		v := gate.Enter(c.read, ratelimit.Bounds{Requests: after}) // the limit may have changed
		if v.Refused == ratelimit.Passed {
			return
		}
		c.now += v.Reset - 1
		if got := gate.Enter(c.read, ratelimit.Bounds{Requests: after}); got.Refused != ratelimit.ByRate {
			t.Fatalf("1 ns before %s: got %+v, want a refusal", v.Reset, got)
		}
		c.now++
		if got := gate.Enter(c.read, ratelimit.Bounds{Requests: after}); got.Refused != ratelimit.Passed {
			t.Fatalf("after %s: got %+v, want it to pass", v.Reset, got)
		}
	})
}

func TestWindowForgetsAndTakesNoMemoryWhenIdle(t *testing.T) {
	var w ratelimit.Window
	for i := range 100_000 {
		w.Add(time.Duration(i))
	}
	if got := w.Count(ratelimit.Span - 1); got != 100_000 {
		t.Errorf("got %d, want all", got)
	}
	if got := w.Count(ratelimit.Span); got != 99_999 {
		t.Errorf("got %d, want all but the oldest", got)
	}
	if got := w.Count(ratelimit.Span + 100_000); got != 0 {
		t.Errorf("got %d, want none", got)
	}
	if w.Turns(0) != 0 || w.Opens(0, 1) != 0 {
		t.Error("an empty window has nothing to wait for")
	}
	if got := testing.AllocsPerRun(10, func() { w.Add(ratelimit.Span) }); got != 0 {
		t.Errorf("got %v allocations per request, want 0 once the ring is there", got)
	}
}

func TestAGateAllocatesNothingPerRequest(t *testing.T) {
	var gate ratelimit.Gate
	c := clock{}
	b := ratelimit.Bounds{Requests: 100, Concurrent: 10}
	step := func() {
		c.now += ratelimit.Span / 50
		if gate.Enter(c.read, b).Refused == ratelimit.Passed {
			gate.Leave()
		}
	}
	for range 1000 {
		step()
	}
	if got := testing.AllocsPerRun(1000, step); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
