package web

import "time"

// A client that sends a body, or takes an answer, of more than 64 KiB has
// paceTimeout for each pacePart of it: 16 KB/s. What the system buffers earns no
// time for later.
const (
	paceTimeout = 10 * time.Second
	pacePart    = 160 << 10 // bytes
)

// pace is a transfer that has to keep up the least rate.
type pace struct {
	deadline time.Time // of the part under way
	left     int       // of that part, in bytes
}

func newPace(now time.Time) pace { return pace{now.Add(paceTimeout), pacePart} }

// advance notes that so many bytes have come, or gone.
func (p *pace) advance(bytes int, now time.Time) {
	if p.left -= bytes; p.left <= 0 {
		*p = newPace(now)
	}
}
