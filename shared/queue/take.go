package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// Taker takes the jobs of one endpoint for one worker. It holds one open pull
// for each free slot, asks for low-priority jobs only while no normal one
// comes, and never fetches a job that no slot is free for.
type Taker struct {
	q      *Queue
	e      endpoint.Endpoint
	at     place
	worker string
	id     string // of this taker: what its records name as their holder

	nudges *nats.Subscription
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	free     []*slot // slots that no call of Next uses
	all      []*slot
	leases   map[job.ID]*Lease // held now
	claiming map[job.ID]bool   // being picked up
}

// Take binds a taker with slots concurrent calls of Next in mind; more are
// possible. worker is the id that records show as workerId. Close it.
func (q *Queue) Take(ctx context.Context, e endpoint.Endpoint, worker string, slots int) (*Taker, error) {
	t := &Taker{
		q: q, e: e, at: placeOf(e), worker: worker, closed: make(chan struct{}),
		leases: make(map[job.ID]*Lease, slots), claiming: make(map[job.ID]bool), id: nuid.Next(),
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if t.nudges, err = q.nc.Subscribe(streams.Nudges(e.ID), t.nudge); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", e.ID, ErrUnavailable, err)
	}
	return t, nil
}

// Close stops taking: every call of Next returns ErrClosed, and what the
// server delivers late is given back at once. Leases stay valid, and are
// nudged until they end or the connection closes.
func (t *Taker) Close() {
	t.once.Do(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		close(t.closed)
		for _, s := range t.all {
			_ = s.sub.Drain() // what is under way still reaches deliver, which gives it back
		}
	})
}

// Next waits for a job and picks it up. It returns ctx.Err() once ctx ends and
// ErrClosed once the taker is closed; everything else it sits out.
func (t *Taker) Next(ctx context.Context) (*Lease, error) {
	s, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer t.leave(s)
	for {
		m, err := s.pull(ctx)
		if err != nil {
			return nil, err
		}
		t.q.point(AfterDelivery)
		lease, err := t.claim(ctx, m)
		if lease != nil {
			return lease, nil
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (t *Taker) enter() (*slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.closed:
		return nil, ErrClosed
	default:
	}
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s, nil
	}
	s := &slot{t: t, inbox: t.q.nc.NewInbox(), got: make(chan *nats.Msg, 1), ended: make(chan string, 1)}
	var err error
	if s.sub, err = t.q.nc.Subscribe(s.inbox, s.deliver); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", t.e.ID, ErrUnavailable, err)
	}
	t.all = append(t.all, s)
	return s, nil
}

func (t *Taker) leave(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, s)
}

// nudge tells the holder of a job that somebody else wrote its record.
func (t *Taker) nudge(m *nats.Msg) {
	t.mu.Lock()
	l := t.leases[streams.JobOfNudge(m.Subject)]
	t.mu.Unlock()
	if l != nil {
		l.signal()
	}
}

func (t *Taker) hold(l *Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[l.Job.ID] = l
}

func (t *Taker) release(l *Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases[l.Job.ID] == l {
		delete(t.leases, l.Job.ID)
	}
}

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

// lowPull is a slot's open pull for a low-priority job.
type lowPull struct {
	sub *nats.Subscription
	got chan *nats.Msg

	mu   sync.Mutex
	over bool
}

func (p *lowPull) start(t *Taker) {
	if p.sub != nil {
		return
	}
	got := make(chan *nats.Msg, 1)
	inbox := t.q.nc.NewInbox()
	sub, err := t.q.nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Status") != "" && len(m.Data) == 0 {
			return // expired or refused: the next pull asks again
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over {
			_ = m.Nak()
			return
		}
		select {
		case got <- m:
		default:
			_ = m.Nak()
		}
	})
	if err != nil {
		return // the connection is away; the pull is repeated when it is back
	}
	p.sub, p.got = sub, got
	_ = t.q.sendPull(t.at.endpoint, job.LowPriority, inbox, 1, pullExpires)
}

// close ends the pull by closing its inbox, so that the server drops it, and
// gives back what was already on its way.
func (p *lowPull) close() {
	if p.sub == nil {
		return
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = p.sub.Drain()
	select {
	case m := <-p.got:
		_ = m.Nak()
	default:
	}
}
