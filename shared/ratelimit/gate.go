package ratelimit

import (
	"sync"
	"time"
)

// Gate lets requests of one operation pass within bounds. It is safe for
// concurrent use; the zero value is ready, and small.
type Gate struct {
	mu     sync.Mutex
	window Window
	inside int
}

// Clock is a monotonic time, from any fixed moment.
type Clock func() time.Duration

// Verdict is what a gate says to a request.
type Verdict struct {
	// Refused says by which bound, or Passed.
	Refused Refusal
	// Left is how many more may pass now by the rate. 0 if there is no rate.
	Left int
	// Reset is the time until more may pass than Left: until the oldest request
	// leaves the window, or when refused by the rate, until one may pass.
	Reset time.Duration
}

// Refusal is the bound that a request was refused by.
type Refusal int

// The refusals.
const (
	Passed       Refusal = iota // not refused: the caller must Leave
	ByRate                      // too many in the window
	ByConcurrent                // too many at once
)

// Enter lets a request pass if both bounds allow it. A request that
// passed counts in the window from now on, and as concurrent until its Leave. A
// refused request does not count.
func (g *Gate) Enter(clock Clock, b Bounds) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := clock() // beneath the lock: the log stays in order, and exact
	v := Verdict{Refused: g.refusal(now, b)}
	if v.Refused == Passed {
		g.inside++
		if b.Requests > 0 {
			g.window.Add(now)
		}
	}
	if b.Requests > 0 {
		v.Left = max(0, b.Requests-g.window.Count(now))
		v.Reset = g.window.Turns(now)
		if v.Refused == ByRate {
			v.Reset = g.window.Opens(now, b.Requests)
		}
	}
	return v
}

func (g *Gate) refusal(now time.Duration, b Bounds) Refusal {
	switch {
	case b.Requests > 0 && g.window.Count(now) >= b.Requests:
		return ByRate
	case b.Concurrent > 0 && g.inside >= b.Concurrent:
		return ByConcurrent
	}
	return Passed
}

// Leave ends a request that passed.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}

// Idle reports whether the gate could be a new one as well: nobody is inside,
// and the window is empty.
func (g *Gate) Idle(now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0 && g.window.Count(now) == 0
}
