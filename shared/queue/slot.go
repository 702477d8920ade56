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

// slot is one place for a job, with a pull for each class.
type slot struct {
	t           *Taker
	normal, low *pull
	again, idle *time.Timer // of a call of once
}

func (t *Taker) newSlot() (*slot, error) {
	s := &slot{t: t, again: time.NewTimer(pullExpires), idle: time.NewTimer(lowAfter)}
	s.stop()
	var err error
	if s.normal, err = t.newPull(job.Normal); err != nil {
		return nil, err
	}
	if s.low, err = t.newPull(job.LowPriority); err != nil {
		_ = s.normal.sub.Unsubscribe()
		return nil, err
	}
	return s, nil
}

// close ends the slot's pulls; what is under way is given back.
func (s *slot) close() {
	s.normal.close()
	s.low.close()
}

// stop silences the timers; what one sent before it goes nowhere.
func (s *slot) stop() {
	s.again.Stop()
	s.idle.Stop()
}

// next waits for a delivery, normal ones first.
func (s *slot) next(ctx context.Context) (*received, error) {
	s.normal.wait(true)
	s.low.wait(true)
	defer s.normal.wait(false)
	defer s.low.wait(false)
	for {
		m, err := s.once(ctx)
		if m != nil || err != nil {
			return m, err
		}
	}
}

// once waits until a job comes, or until there is reason to ask again: then it
// returns nothing.
func (s *slot) once(ctx context.Context) (*received, error) {
	back := s.t.q.service.reconnected()
	s.normal.ask()
	s.again.Reset(pullExpires + pullPause)
	s.idle.Reset(lowAfter)
	defer s.stop()
	for {
		select {
		case m := <-s.normal.got:
			return m, nil
		case m := <-s.low.got:
			return s.preferNormal(m), nil
		case <-s.idle.C:
			s.low.ask()
		case refused := <-s.normal.ended:
			if refused { // the consumer moved to another node, or is away
				s.t.q.service.failed()
				return nil, s.pause(ctx)
			}
			return nil, nil //nolint:nilnil // it expired, as pulls do
		case <-s.again.C: // not even the end of the pull was told
			s.t.q.service.failed()
			s.forget()
			return nil, nil //nolint:nilnil // ask again
		case <-back:
			s.forget()      // the server may have forgotten them too
			return nil, nil //nolint:nilnil // ask again
		case <-s.t.closed:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *slot) preferNormal(low *received) *received {
	select {
	case m := <-s.normal.got:
		low.release(s.t.e.Lease)
		return m
	default:
		return low
	}
}

func (s *slot) forget() {
	s.normal.forget()
	s.low.forget()
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

// pull is a slot's request for one job of a class, open at the server for
// pullExpires. Its inbox lives as long as the taker: a pull that brought
// nothing serves the next call, and a job that it brings while the slot is not
// waiting goes back at once. Closing the inbox at every job instead cost each
// job a subscription (docs/adr/0006).
type pull struct {
	t       *Taker
	subject string // of the request
	body    []byte
	inbox   string
	sub     *nats.Subscription
	got     chan *received // the job that came while the slot waited
	ended   chan bool      // the server ended the pull; true: it refused it

	mu      sync.Mutex
	waiting bool
	closing bool
	open    time.Time // until then it is open
	ends    time.Time // until then the server may keep it, also if it was forgotten
}

func (t *Taker) newPull(c job.Class) (*pull, error) {
	p := &pull{
		t: t, subject: pullSubject(t.at.endpoint, c), body: pullBody(1, pullExpires), inbox: t.q.nc.NewInbox(),
		got: make(chan *received, 1), ended: make(chan bool, 1),
	}
	var err error
	if p.sub, err = t.q.nc.Subscribe(p.inbox, p.deliver); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", t.e.ID, ErrUnavailable, err)
	}
	t.pulls.Add(1)
	p.sub.SetClosedHandler(func(string) { t.pulls.Done() })
	return p, nil
}

// close ends the pull and gives back what it still brings. On a server that is
// alone the end of the subscription ends the pull too. In a cluster a delivery
// may be on its way from another node when the subscription ends at this one,
// and would be held by nobody for a lease: there it lasts as long as the pull.
func (p *pull) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	left := time.Until(p.ends)
	if left <= 0 || p.t.q.nc.ConnectedClusterName() == "" || plantCloseAtOnce {
		_ = p.sub.Drain()
		return
	}
	time.AfterFunc(left+pullPause, func() { _ = p.sub.Drain() })
}

func (p *pull) deliver(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.ends = time.Time{}, time.Time{}
	if p.closing {
		defer func() { _ = p.sub.Drain() }()
	}
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		select {
		case p.ended <- status != "408" && status != "404":
		default:
		}
		return
	}
	got := &received{Msg: m, at: time.Now(), steady: p.t.q.service.steady()}
	if p.waiting {
		select {
		case p.got <- got:
			return
		default:
		}
	}
	got.release(p.t.e.Lease)
}

// wait says whether the slot waits. What came and was not taken goes back.
func (p *pull) wait(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = on
	if on {
		return
	}
	select {
	case m := <-p.got:
		m.release(p.t.e.Lease)
	default:
	}
}

// ask opens the pull unless it is open.
func (p *pull) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.open) {
		return
	}
	select {
	case <-p.ended: // of an older one
	default:
	}
	if p.t.q.nc.PublishRequest(p.subject, p.inbox, p.body) == nil {
		p.open = now.Add(pullExpires)
		p.ends = p.open
	}
}

func (p *pull) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = time.Time{}
}

// sendPull asks the consumer of a class for up to batch messages on inbox.
// expires 0 takes only what waits now.
func (q *Queue) sendPull(endpoint string, c job.Class, inbox string, batch int, expires time.Duration) error {
	return q.nc.PublishRequest(pullSubject(endpoint, c), inbox, pullBody(batch, expires))
}

func pullSubject(endpoint string, c job.Class) string {
	return streams.PullNext(streams.Jobs(endpoint), streams.Consumer(c))
}

func pullBody(batch int, expires time.Duration) []byte {
	if expires == 0 {
		return fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, batch)
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, expires.Nanoseconds())
}
