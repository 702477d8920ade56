package webhook

import "time"

// pace is what is known of an origin.
type pace struct {
	// limit is how many attempts it gets at once.
	limit int
	// took is how long the last ones lasted, the latest counting most; 0 if
	// there was none.
	took time.Duration
	// since is when the first one was wanted.
	since time.Time
}

// wait is how long n completions are expected to take. An answer that nobody
// has seen yet takes as long as it has been waited for.
func (p pace) wait(n int) time.Duration {
	took := p.took
	if took == 0 {
		took = time.Since(p.since)
	}
	return time.Duration(n) * took / time.Duration(p.limit)
}

// after is the pace once another attempt has ended.
func (p pace) after(took time.Duration, ok bool, most int) pace {
	if p.took > 0 {
		took = (7*p.took + took) / 8
	}
	p.took = max(took, 1)
	if ok {
		p.limit = min(p.limit+1, most)
	} else {
		p.limit = max(p.limit/2, 1)
	}
	return p
}
