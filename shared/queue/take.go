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

	// confirm is how long a run may go without a sign of its worker; 0: none is
	// needed (remote.go).
	confirm time.Duration

	nudges *nats.Subscription
	closed chan struct{}
	once   sync.Once

	pulls sync.WaitGroup // whose subscriptions are open

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
			s.close()
		}
	})
}

// Wait returns once a closed taker has given back all that the server may still
// have delivered to it: at once on a server that is alone, within pullExpires in
// a cluster. Without a connection there is nothing to give back.
func (t *Taker) Wait() {
	if !t.q.nc.IsConnected() {
		return
	}
	ended := make(chan struct{})
	go func() { // ends with the connection at the latest
		t.pulls.Wait()
		close(ended)
	}()
	late := time.NewTimer(pullExpires + time.Second)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
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
		m, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		t.q.point(AfterDelivery)
		within, cancel := context.WithTimeout(ctx, t.claimTimeout())
		lease, err := t.claim(within, m)
		cancel()
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
	s, err := t.newSlot()
	if err != nil {
		return nil, err
	}
	t.all = append(t.all, s)
	return s, nil
}

func (t *Taker) leave(s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, s)
}

// nudge tells the holder of a job to look at its record, and answers whether it
// lives.
func (t *Taker) nudge(m *nats.Msg) {
	t.mu.Lock()
	l := t.leases[streams.JobOf(m.Subject)]
	t.mu.Unlock()
	if l == nil {
		return
	}
	if isAsk(m) && l.alive() {
		t.q.answer(t.at.endpoint, l.Job.ID, holderAnswer{Attempt: l.Job.Attempt, Run: l.Job.Run})
	}
	l.signal()
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
