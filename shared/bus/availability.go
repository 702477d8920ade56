package bus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Availability knows since when JetStream has answered this process without a gap.
// A second delivery of a held job proves that its worker is lost only if this
// process would have noticed the outage that is the other explanation
// (docs/design/data-model.md#leases).
type Availability struct {
	mu          sync.Mutex
	since, last time.Time     // process time; zero: not now
	gap         time.Time     // when a gap was last noticed; zero: there was none
	back        chan struct{} // closed and replaced at each reconnection
}

func newAvailability() *Availability { return &Availability{back: make(chan struct{})} }

// maxProbeGap is the silence after which uninterrupted service is no longer
// known: a suspended process must not believe that it saw nothing happen.
const maxProbeGap = 4 * probeInterval

func (s *Availability) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() && Elapsed(s.last, now) > maxProbeGap {
		s.since, s.gap = time.Time{}, now
	}
	if s.since.IsZero() {
		s.since = now
	}
	s.last = now
}

// Failed ends the uninterrupted service: a request was not answered.
func (s *Availability) Failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.gap = time.Time{}, time.Now()
}

// Age is how long service has been uninterrupted up to now.
func (s *Availability) Age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.since.IsZero() || Elapsed(s.last, now) > maxProbeGap {
		return 0
	}
	return now.Sub(s.since)
}

// AgeWith is Age, or for how long service has been uninterrupted by the word of another
// process, served, if that is longer. What this process noticed the other may have
// missed: of a stream without a leader only those know that use it.
func (s *Availability) AgeWith(served time.Duration) time.Duration {
	age := s.Age()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gap.IsZero() {
		served = min(served, Elapsed(s.gap, time.Now()))
	}
	return max(age, served)
}

// settleTime is how long after a gap of service a delivery may still come out of
// a buffer: the time to read it after this process was resumed.
const settleTime = 2 * time.Second

// Steady reports whether what arrives now was sent within maxProbeGap: neither
// was this process suspended lately, nor its connection.
func (s *Availability) Steady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return Elapsed(s.last, now) <= maxProbeGap && (s.gap.IsZero() || Elapsed(s.gap, now) >= settleTime)
}

// Elapsed is the time between two instants of this process. It counts a
// suspension of the machine, during which the monotonic clock stands still and
// the wall clock does not; a wall clock that is set back shortens nothing.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Reconnected returns a channel that is closed at the next reconnection.
func (s *Availability) Reconnected() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.back
}

func (s *Availability) connectionIsBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.back)
	s.back = make(chan struct{})
}

func (c *Client) watchConnection(ctx context.Context) error {
	changes := c.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer c.nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return nil
		case status, ok := <-changes:
			if !ok {
				return nil
			}
			c.availability.Failed()
			if status == nats.CONNECTED {
				c.knownBarrier() // another server may have one
				c.availability.connectionIsBack()
			}
		}
	}
}
