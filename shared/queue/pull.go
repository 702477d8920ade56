package queue

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/mutation"
	"flightline/streams"
)

// pull is a slot's request for one job of a class, open at the server for
// pullExpires. Its inbox serves many requests: a pull that brought nothing serves the
// next call, and a job that it brings while the slot is not waiting goes back at
// once. A new inbox for every job cost each a subscription (docs/adr/0006).
type pull struct {
	t       *Consumer
	subject string // of the request
	body    []byte
	got     chan *received // the job that came while the slot waited
	ended   chan bool      // the server ended the pull; true: it refused it

	mu      sync.Mutex
	in      *inbox
	waiting bool
	closing bool
	open    time.Time // until then it is open
}

// inbox is where the server answers one request at a time: so what comes is known to
// have been sent after that request.
type inbox struct {
	subject string
	sub     *nats.Subscription
	asked   time.Time // when the request was sent that has no answer yet; zero: there is no such request
}

func (t *Consumer) newPull(c job.Class) (*pull, error) {
	p := &pull{
		t: t, subject: pullSubject(t.at.Endpoint, c), body: pullBody(1, t.pullExpires()),
		got: make(chan *received, 1), ended: make(chan bool, 1),
	}
	var err error
	p.in, err = p.newInbox()
	return p, err
}

func (p *pull) newInbox() (*inbox, error) {
	in := &inbox{subject: p.t.q.nc.NewInbox()}
	var err error
	if in.sub, err = p.t.q.nc.Subscribe(in.subject, func(m *nats.Msg) { p.deliver(in, m) }); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", p.t.e.ID, bus.ErrUnavailable, err)
	}
	p.t.pulls.Add(1)
	in.sub.SetClosedHandler(func(string) { p.t.pulls.Done() })
	return in, nil
}

// close ends the pull and gives back what it still brings.
func (p *pull) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	p.retire(p.in)
}

// retire ends an inbox. On a server that is alone the end of the subscription ends
// the pull too. In a cluster a delivery may be on its way from another node when the
// subscription ends at this one, and would be held without a worker for a lease:
// there it lasts as long as the pull.
func (p *pull) retire(in *inbox) {
	left := time.Until(in.asked.Add(p.t.pullExpires()))
	if left <= 0 || p.t.q.nc.ConnectedClusterName() == "" || mutation.CloseAtOnce {
		_ = in.sub.Drain()
		return
	}
	time.AfterFunc(left+pullPause, func() { _ = in.sub.Drain() })
}

func (p *pull) deliver(in *inbox, m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := in.asked
	in.asked = time.Time{}
	old := in != p.in
	if !old {
		p.open = time.Time{}
	}
	if old || p.closing {
		defer func() { _ = in.sub.Drain() }()
	}
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		if old {
			return
		}
		select {
		case p.ended <- status != "408" && status != "404":
		default:
		}
		return
	}
	got := &received{Msg: m, asked: asked, steady: p.t.q.bus.Availability().Steady()}
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
	if p.closing || now.Before(p.open) || p.renewInbox() != nil {
		return
	}
	select {
	case <-p.ended: // of an older one
	default:
	}
	p.in.asked = now
	if p.t.q.nc.PublishRequest(p.subject, p.in.subject, p.body) == nil {
		p.open = now.Add(p.t.pullExpires())
	}
}

// renewInbox takes another inbox if the last request has no answer: if it came yet, it
// would be taken for that of the next request, and for younger than it is.
func (p *pull) renewInbox() error {
	if p.in.asked.IsZero() {
		return nil
	}
	in, err := p.newInbox()
	if err != nil {
		return err // the connection is closed
	}
	p.retire(p.in)
	p.in = in
	return nil
}

func (p *pull) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = time.Time{}
}

// sendPull asks the consumer of a class for up to batch messages on inbox.
// expires 0 takes only what waits now.
func sendPull(nc *nats.Conn, endpoint string, c job.Class, inbox string, batch int, expires time.Duration) error {
	return nc.PublishRequest(pullSubject(endpoint, c), inbox, pullBody(batch, expires))
}

func pullSubject(endpoint string, c job.Class) string {
	return bus.PullNext(streams.Jobs(endpoint), streams.Consumer(c))
}

func pullBody(batch int, expires time.Duration) []byte {
	if expires == 0 {
		return fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, batch)
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, expires.Nanoseconds())
}

// received is a delivery as it reached this process.
type received struct {
	*nats.Msg
	// asked is when its pull was asked for: the server sent it later. When it came
	// says nothing: it may have waited in a buffer of a suspended process, for longer
	// than a lease and than its job.
	asked time.Time
	// steady: service was steady when it came, so it was sent just before.
	steady bool
}

// fresh reports whether the delivery is this process's still: after a lease the
// message may be another worker's, and what is acknowledged would be that
// worker's run.
func (m *received) fresh(now time.Time, lease time.Duration) bool {
	return mutation.AlwaysFresh || bus.Elapsed(m.asked, now) < lease/2
}

// doubtful reports whether the job of the delivery may have ended since it was sent.
func (m *received) doubtful(now time.Time, lease time.Duration) bool {
	return !m.fresh(now, lease) || !m.steady && !mutation.AlwaysFresh
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
