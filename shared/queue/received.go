package queue

import (
	"time"

	"github.com/nats-io/nats.go"
)

// received is a delivery as it reached this process.
type received struct {
	*nats.Msg
	at time.Time
	// steady: it was sent just before. Otherwise it may have waited in a buffer
	// of a suspended process, for longer than a lease and than its job.
	steady bool
}

// fresh reports whether the delivery is this process's still: after a lease the
// message may be another worker's, and what is said of it would be said of that
// worker's run.
func (m *received) fresh(now time.Time, lease time.Duration) bool {
	return plantAlwaysFresh || m.steady && elapsed(m.at, now) < lease/2
}

// release gives the message back at once. A delivery that is not fresh is left
// alone: the server redelivers it when its lease ends, or has done so.
func (m *received) release(lease time.Duration) {
	if m.fresh(time.Now(), lease) {
		_ = m.Nak() // lost, it costs one lease of waiting, no job
	}
}

// postpone asks for the message again after delay, as release does.
func (m *received) postpone(lease, delay time.Duration) {
	if m.fresh(time.Now(), lease) {
		_ = m.NakWithDelay(delay)
	}
}
