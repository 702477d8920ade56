package ratelimit

import (
	"math"
	"slices"
	"time"
)

// Bounds are one operation's: Requests in any 10 s, and Concurrent at once.
// 0 means no bound of that kind.
type Bounds struct {
	Requests   int
	Concurrent int
}

// Raised returns the bounds of an endpoint with running workers, each of which
// allows perWorker requests: the higher of both, for the rate and for what is
// allowed at once. No bound stays none.
func (b Bounds) Raised(workers, perWorker int) Bounds {
	allowed := product(workers, perWorker)
	if b.Requests > 0 {
		b.Requests = max(b.Requests, allowed)
	}
	if b.Concurrent > 0 {
		b.Concurrent = max(b.Concurrent, allowed)
	}
	return b
}

// Share returns what one of so many servers may let pass, if all get the same:
// rounded up, so that it is never nothing. Fewer than 1 count as 1.
func (b Bounds) Share(servers int) Bounds {
	n := max(1, servers)
	return Bounds{Requests: share(b.Requests, n), Concurrent: share(b.Concurrent, n)}
}

// share is a/n, rounded up.
func share(a, n int) int {
	if a <= 0 {
		return 0
	}
	return (a-1)/n + 1
}

// product is a·b without overflow; negative factors count as 0.
func product(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

// Peak remembers how many servers there were at each of the last looks, and
// goes by the most: a share grows only when the server that had the rest has let
// nothing pass for a Span. Look once a second. The zero value has seen none.
type Peak struct {
	looks [peakLooks]int
	next  int
}

// peakLooks is how many looks, a second apart, cover a Span.
const peakLooks = int(Span/time.Second) + 1

// Look notes how many there are and returns the most of the last Span.
func (p *Peak) Look(servers int) int {
	p.looks[p.next] = servers
	p.next = (p.next + 1) % len(p.looks)
	return slices.Max(p.looks[:])
}
