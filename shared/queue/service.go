package queue

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// service knows since when JetStream has answered this process without a gap.
// A second delivery of a held job proves that its worker is lost only if this
// process would have noticed the outage that is the other explanation
// (data-model.md, "Leases and workers").
type service struct {
	mu          sync.Mutex
	since, last time.Time     // process time; zero: not now
	gap         time.Time     // when a gap was last noticed; zero: there was none
	back        chan struct{} // closed and replaced at each reconnection
}

func newService() *service { return &service{back: make(chan struct{})} }

// maxProbeGap is the silence after which uninterrupted service is no longer
// known: a suspended process must not believe that it saw nothing happen.
const maxProbeGap = 4 * probeInterval

func (s *service) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() && elapsed(s.last, now) > maxProbeGap {
		s.since, s.gap = time.Time{}, now
	}
	if s.since.IsZero() {
		s.since = now
	}
	s.last = now
}

func (s *service) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.gap = time.Time{}, time.Now()
}

// age is how long service has been uninterrupted up to now.
func (s *service) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.since.IsZero() || elapsed(s.last, now) > maxProbeGap {
		return 0
	}
	return now.Sub(s.since)
}

// settleTime is how long after a gap of service a delivery may still come out of
// a buffer: the time to read it after this process was resumed.
const settleTime = 2 * time.Second

// steady reports whether what arrives now was sent within maxProbeGap: neither
// was this process suspended lately, nor its connection.
func (s *service) steady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return elapsed(s.last, now) <= maxProbeGap && (s.gap.IsZero() || elapsed(s.gap, now) >= settleTime)
}

// elapsed is the time between two instants of this process. It counts a
// suspension of the machine, during which the monotonic clock stands still and
// the wall clock does not; a wall clock that is set back shortens nothing.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// reconnected returns a channel that is closed at the next reconnection.
func (s *service) reconnected() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.back
}

func (s *service) connectionIsBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.back)
	s.back = make(chan struct{})
}

func (q *Queue) watchConnection(ctx context.Context) error {
	changes := q.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer q.nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return nil
		case status, ok := <-changes:
			if !ok {
				return nil
			}
			q.service.failed()
			if status == nats.CONNECTED {
				q.service.connectionIsBack()
			}
		}
	}
}
