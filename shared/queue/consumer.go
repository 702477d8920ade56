package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Consumer takes the jobs of one endpoint for one worker. It holds one open pull
// for each free slot, asks for low-priority jobs only while no normal one
// comes, and never fetches a job that no slot is free for.
type Consumer struct {
	q      *Queue
	e      endpoint.Endpoint
	at     record.Location
	worker string
	id     string // of this consumer: what its records name as their holder

	// confirm is how long a run may go without a sign of its worker; 0: none is
	// needed (remote.go).
	confirm time.Duration

	nudges *nats.Subscription
	closed chan struct{}
	once   sync.Once

	pulls    sync.WaitGroup // whose inboxes are open
	gaveBack atomic.Bool    // something came after Close

	mu       sync.Mutex
	free     []*puller // slots that no call of Next uses
	all      []*puller
	leases   map[job.ID]*Lease // held now
	claiming map[job.ID]bool   // being picked up
}

// Consume binds a consumer with slots concurrent calls of Next in mind; more are
// possible. worker is the id that records show as workerId. Close it.
func (q *Queue) Consume(ctx context.Context, e endpoint.Endpoint, worker string, slots int) (*Consumer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := q.newConsumer(e, worker, slots)
	var err error
	if c.nudges, err = q.nc.Subscribe(streams.Nudges(e.ID), c.onNudge); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", e.ID, bus.ErrUnavailable, err)
	}
	return c, nil
}

func (q *Queue) newConsumer(e endpoint.Endpoint, worker string, slots int) *Consumer {
	return &Consumer{
		q: q, e: e, at: record.LocationOf(e), worker: worker, closed: make(chan struct{}),
		leases: make(map[job.ID]*Lease, slots), claiming: make(map[job.ID]bool), id: nuid.Next(),
	}
}

// Close stops taking: every call of Next returns ErrClosed, and what the
// server delivers late is given back at once. Leases stay valid, and are
// nudged until they end or the connection closes.
func (c *Consumer) Close() {
	c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.closed)
		for _, s := range c.all {
			s.close()
		}
	})
}

// Wait returns once a closed consumer has given back all that the server may still
// have delivered to it: at once on a server that is alone, within pullExpires in
// a cluster. Without a connection there is nothing to give back. If no lease is held,
// the consumer leaves nothing behind on the connection. It reports whether it gave anything
// back: those jobs wait for a worker.
func (c *Consumer) Wait() (gaveBack bool) {
	defer c.unsubscribe()
	if !c.q.nc.IsConnected() {
		return false
	}
	ended := make(chan struct{})
	go func() { // ends with the connection at the latest
		c.pulls.Wait()
		close(ended)
	}()
	late := time.NewTimer(c.pullExpires() + time.Second)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
	return c.gaveBack.Load()
}

// unsubscribe ends the subscription by which leases are nudged, if none is held.
func (c *Consumer) unsubscribe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nudges != nil && len(c.leases) == 0 {
		_ = c.nudges.Unsubscribe() // the connection is closed then, or it is done
	}
}

// Next waits for a job and picks it up. It returns ctx.Err() once ctx ends and
// ErrClosed once the consumer is closed; everything else it sits out.
func (c *Consumer) Next(ctx context.Context) (*Lease, error) {
	s, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.leave(s)
	for {
		m, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		c.q.Reach(AfterDelivery)
		within, cancel := context.WithTimeout(ctx, c.claimTimeout())
		lease, err := c.claim(within, m)
		cancel()
		if lease != nil {
			return lease, nil
		}
		if errors.Is(err, bus.ErrUnavailable) {
			c.giveBackUnanswered(ctx, m)
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (c *Consumer) enter() (*puller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		return nil, ErrClosed
	default:
	}
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s, nil
	}
	s, err := c.newPuller()
	if err != nil {
		return nil, err
	}
	c.all = append(c.all, s)
	return s, nil
}

func (c *Consumer) leave(s *puller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, s)
}

// nudge asks the holder of a job, if it has one, to read its record.
// It may be lost; the next heartbeat looks anyway.
func (q *Queue) nudge(at record.Location, id job.ID) {
	_ = q.nc.Publish(streams.Nudge(at.Endpoint, id), nil)
}

// onNudge makes the holder of a job read its record, and answers whether it
// lives.
func (c *Consumer) onNudge(m *nats.Msg) {
	c.mu.Lock()
	l := c.leases[streams.JobOf(m.Subject)]
	c.mu.Unlock()
	if l == nil {
		return
	}
	if isAsk(m) && l.alive() {
		answerQuestion(c.q.nc, c.at.Endpoint, l.Job.ID, holderAnswer{Attempt: l.Job.Attempt, Run: l.Job.Run, SilentMs: time.Since(*l.extended.Load()).Milliseconds()})
	}
	l.signal()
}

func (c *Consumer) hold(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[l.Job.ID] = l
}

func (c *Consumer) release(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.Job.ID] == l {
		delete(c.leases, l.Job.ID)
	}
}

const (
	// maxPullExpires bounds how long the server keeps a pull open.
	maxPullExpires = 5 * time.Second
	// pullPatience is how long the end of a pull may be late. After it the pull
	// counts as a request without an answer.
	pullPatience = bus.RequestTimeout
	// lowAfter is how long a slot waits for a normal job before it asks for a
	// low-priority one too.
	lowAfter = 20 * time.Millisecond
	// pullPause keeps a refused pull from being repeated at once.
	pullPause = 100 * time.Millisecond
)

// pullExpires is how long the server keeps a pull open: a delivery is fresh for half a
// lease from when its pull was asked for, and half of that is left when it comes.
func (c *Consumer) pullExpires() time.Duration { return min(maxPullExpires, c.e.Lease/4) }

// puller is one place for a job, with a pull for each class.
type puller struct {
	consumer                      *Consumer
	normal, low                   *pull
	repullTimer, lowPriorityTimer *time.Timer // of a call of once
}

func (c *Consumer) newPuller() (*puller, error) {
	s := &puller{consumer: c, repullTimer: time.NewTimer(maxPullExpires), lowPriorityTimer: time.NewTimer(lowAfter)}
	s.stop()
	var err error
	if s.normal, err = c.newPull(job.Normal); err != nil {
		return nil, err
	}
	if s.low, err = c.newPull(job.LowPriority); err != nil {
		_ = s.normal.in.sub.Unsubscribe()
		return nil, err
	}
	return s, nil
}

// close ends the slot's pulls; what is under way is given back.
func (s *puller) close() {
	s.normal.close()
	s.low.close()
}

// stop silences the timers; what one sent before it goes nowhere.
func (s *puller) stop() {
	s.repullTimer.Stop()
	s.lowPriorityTimer.Stop()
}

// next waits for a delivery, normal ones first.
func (s *puller) next(ctx context.Context) (*received, error) {
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
func (s *puller) once(ctx context.Context) (*received, error) {
	back := s.consumer.q.bus.Availability().Reconnected()
	s.normal.ask()
	s.repullTimer.Reset(s.consumer.pullExpires() + pullPatience)
	s.lowPriorityTimer.Reset(lowAfter)
	defer s.stop()
	for {
		select {
		case m := <-s.normal.got:
			return m, nil
		case m := <-s.low.got:
			return s.preferNormal(m), nil
		case <-s.lowPriorityTimer.C:
			s.low.ask()
		case refused := <-s.normal.ended:
			if refused { // the consumer moved to another node, or is away
				s.consumer.q.bus.Availability().Failed()
				return nil, s.pause(ctx)
			}
			return nil, nil //nolint:nilnil // it expired, as pulls do
		case refused := <-s.low.ended:
			again := lowAfter
			if refused {
				again = pullPause
			}
			s.lowPriorityTimer.Reset(again)
		case <-s.repullTimer.C: // not even the end of the pull came
			s.consumer.q.bus.Availability().Failed()
			s.forget()
			return nil, nil //nolint:nilnil // ask again
		case <-back:
			s.forget()      // the server may have forgotten them too
			return nil, nil //nolint:nilnil // ask again
		case <-s.consumer.closed:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *puller) preferNormal(low *received) *received {
	select {
	case m := <-s.normal.got:
		low.release(s.consumer.e.Lease)
		return m
	default:
		return low
	}
}

func (s *puller) forget() {
	s.normal.forget()
	s.low.forget()
}

func (s *puller) pause(ctx context.Context) error {
	s.forget()
	select {
	case <-time.After(pullPause):
		return nil
	case <-s.consumer.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
