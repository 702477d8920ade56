package ratelimit

import "time"

// Span is the length of the window; the API promises 10 s.
const Span = 10 * time.Second

// Window is an exact log of the requests of the last Span: no interval of that
// length, wherever it begins, has more of them than were allowed. Times count
// from any fixed moment and never go back. The zero value is an empty window;
// it takes 8 bytes for each request that is in it, and none when it is idle.
// It is not safe for concurrent use.
type Window struct {
	ring  []time.Duration // its length is 0 or a power of two
	first int             // index of the oldest
	count int
}

const (
	// leastRing is the first length of a ring.
	leastRing = 16
	// keptRing is the longest that an empty window keeps.
	keptRing = 64
)

// Count returns how many requests the window has.
func (w *Window) Count(now time.Duration) int {
	w.forget(now)
	return w.count
}

// Add writes one request down.
func (w *Window) Add(now time.Duration) {
	if w.count == len(w.ring) {
		w.grow()
	}
	w.ring[(w.first+w.count)&(len(w.ring)-1)] = now
	w.count++
}

// Opens returns how long it takes until the window has fewer than limit
// requests, if none is added: 0 if it has so already. The limit is at least 1.
func (w *Window) Opens(now time.Duration, limit int) time.Duration {
	w.forget(now)
	if w.count < limit {
		return 0
	}
	return w.ring[(w.first+w.count-limit)&(len(w.ring)-1)] + Span - now
}

// Turns returns how long it takes until the oldest request leaves, 0 if the
// window is empty.
func (w *Window) Turns(now time.Duration) time.Duration {
	w.forget(now)
	if w.count == 0 {
		return 0
	}
	return w.ring[w.first] + Span - now
}

// forget drops the requests that are out of the window.
func (w *Window) forget(now time.Duration) {
	for w.count > 0 && now-w.ring[w.first] >= Span {
		w.first = (w.first + 1) & (len(w.ring) - 1)
		w.count--
	}
	if w.count == 0 && len(w.ring) > keptRing {
		*w = Window{}
	}
}

func (w *Window) grow() {
	longer := make([]time.Duration, max(leastRing, 2*len(w.ring)))
	n := copy(longer, w.ring[w.first:])
	copy(longer[n:], w.ring[:w.first])
	w.ring, w.first = longer, 0
}
