package webhook

import (
	"cmp"
	"time"
)

// concurrency is the number of attempts at once that a host gets, and how long
// its attempts take.
type concurrency struct {
	limit int
	// took is a moving average of the duration of attempts, 0 before the first
	// one ended.
	took time.Duration
	// since is when the first attempt was wanted.
	since time.Time
}

// expectedWait is how long n tasks are expected to take. Before the first
// answer, an attempt is expected to take as long as it has been waited for.
func (c concurrency) expectedWait(n int) time.Duration {
	took := cmp.Or(c.took, time.Since(c.since))
	return time.Duration(n) * took / time.Duration(c.limit)
}

// after is the concurrency once another attempt has ended: one more at once
// after a success, up to limit, half as many after a failure.
func (c concurrency) after(took time.Duration, ok bool, limit int) concurrency {
	if c.took > 0 {
		took = (7*c.took + took) / 8
	}
	c.took = max(took, 1)
	if ok {
		c.limit = min(c.limit+1, limit)
	} else {
		c.limit = max(c.limit/2, 1)
	}
	return c
}

// concurrencyFor is how many attempts at once a process has that may open so many
// files, 0 if that is not known. NATS and its store need files, too.
func concurrencyFor(files int) int {
	if files <= 0 {
		return defaultMaxConcurrency
	}
	return min(defaultMaxConcurrency, max(files/8, 1))
}
