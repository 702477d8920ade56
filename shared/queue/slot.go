package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

const (
	// pullExpires is how long the server keeps a pull open.
	pullExpires = 5 * time.Second
	// lowAfter is how long a slot waits for a normal job before it asks for a
	// low-priority one too.
	lowAfter = 20 * time.Millisecond
	// pullPause keeps a refused pull from being repeated at once.
	pullPause = 100 * time.Millisecond
)

// slot is one place for a job. Its normal pull has an inbox for as long as the
// taker lives, and is used again by the next call if no job came on it; its
// low-priority pull has an inbox of its own, which is closed when the other wins.
type slot struct {
	t     *Taker
	inbox string
	sub   *nats.Subscription
	got   chan *nats.Msg // the job that was delivered while the slot waited
	ended chan string    // the status with which the server ended the pull

	mu      sync.Mutex
	waiting bool
	open    time.Time // until then a normal pull is open
}

// deliver takes a message of the normal pull. A job that comes while the slot
// is not waiting goes back at once.
func (s *slot) deliver(m *nats.Msg) {
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		s.mu.Lock()
		s.open = time.Time{}
		s.mu.Unlock()
		select {
		case s.ended <- status:
		default:
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = time.Time{}
	if s.waiting {
		select {
		case s.got <- m:
			return
		default:
		}
	}
	_ = m.Nak() // a lost nak costs one lease of waiting, no job
}

func (s *slot) setWaiting(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = on
}

// ask opens the normal pull unless one is open.
func (s *slot) ask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.open) {
		return
	}
	select {
	case <-s.ended: // of an older pull
	default:
	}
	if s.t.q.sendPull(s.t.at.endpoint, job.Normal, s.inbox, 1, pullExpires) == nil {
		s.open = time.Now().Add(pullExpires)
	}
}

func (s *slot) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = time.Time{}
}

// sendPull asks the consumer of a class for up to batch messages on inbox.
func (q *Queue) sendPull(endpoint string, c job.Class, inbox string, batch int, expires time.Duration) error {
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, expires.Nanoseconds())
	if expires == 0 {
		body = fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, batch)
	}
	return q.nc.PublishRequest(streams.PullNext(streams.Jobs(endpoint), streams.Consumer(c)), inbox, body)
}

// pull waits for a delivery, normal ones first.
func (s *slot) pull(ctx context.Context) (*nats.Msg, error) {
	s.setWaiting(true)
	defer s.stopWaiting()
	for {
		m, err := s.pullOnce(ctx)
		if m != nil || err != nil {
			return m, err
		}
	}
}

// stopWaiting gives back what was delivered but not taken.
func (s *slot) stopWaiting() {
	s.setWaiting(false)
	select {
	case m := <-s.got:
		_ = m.Nak()
	default:
	}
}

func (s *slot) pullOnce(ctx context.Context) (*nats.Msg, error) {
	back := s.t.q.service.reconnected()
	s.ask()
	low := &lowPull{}
	defer low.close()
	again := time.NewTimer(pullExpires + pullPause)
	defer again.Stop()
	idle := time.NewTimer(lowAfter)
	defer idle.Stop()
	for {
		select {
		case m := <-s.got:
			return m, nil
		case m := <-low.got:
			return s.preferNormal(m), nil
		case <-idle.C:
			low.start(s.t)
		case status := <-s.ended:
			if status == "408" || status == "404" { // it expired, as pulls do
				return nil, nil //nolint:nilnil // nothing came: ask again
			}
			return nil, s.pause(ctx)
		case <-again.C:
			s.forget()
			return nil, nil //nolint:nilnil // as above
		case <-back:
			s.forget()      // the server may have forgotten it too
			return nil, nil //nolint:nilnil // as above
		case <-s.t.closed:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *slot) preferNormal(low *nats.Msg) *nats.Msg {
	select {
	case m := <-s.got:
		_ = low.Nak()
		return m
	default:
		return low
	}
}

func (s *slot) pause(ctx context.Context) error {
	s.forget()
	select {
	case <-time.After(pullPause):
		return nil
	case <-s.t.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
