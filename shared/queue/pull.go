package queue

import (
	"fmt"
	"strconv"
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
	consumer *Consumer
	subject  string // of the request
	body     []byte
	got      chan *received // the job that came while the slot waited
	ended    chan bool      // the server ended the pull; true: it refused it

	mu      sync.Mutex
	in      *inbox
	waiting bool
	closing bool
	open    time.Time // until then an answer to the last request is expected
}

// inbox is where the server answers one request at a time: so what comes is known to
// have been sent after that request. A job that comes names its own subject, the end of a
// pull that of its request: a server that shuts down or loses its leadership may end one
// twice.
type inbox struct {
	subject string
	sub     *nats.Subscription
	number  uint64    // of the last request
	asked   time.Time // when it was sent, while it has no answer; else zero
}

// reply is the subject for the answers to the last request.
func (in *inbox) reply() string { return in.subject + "." + strconv.FormatUint(in.number, 10) }

func (c *Consumer) newPull(class job.Class) (*pull, error) {
	p := &pull{
		consumer: c, subject: pullSubject(c.at.Endpoint, class), body: pullBody(c.pullExpires()),
		got: make(chan *received, 1), ended: make(chan bool, 1),
	}
	var err error
	p.in, err = p.newInbox()
	return p, err
}

func (p *pull) newInbox() (*inbox, error) {
	in := &inbox{subject: p.consumer.q.nc.NewInbox()}
	var err error
	if in.sub, err = p.consumer.q.nc.Subscribe(in.subject+".*", func(m *nats.Msg) { p.deliver(in, m) }); err != nil {
		return nil, fmt.Errorf("take jobs of %s: %w: %w", p.consumer.e.ID, bus.ErrUnavailable, err)
	}
	p.consumer.pulls.Add(1)
	in.sub.SetClosedHandler(func(string) { p.consumer.pulls.Done() })
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
// there it lasts as long as the pull. Without a connection the server would not know of
// the end: the client subscribes again when it is back, and the pull may still be open.
func (p *pull) retire(in *inbox) {
	nc, left := p.consumer.q.nc, max(0, time.Until(in.asked.Add(p.consumer.pullExpires())))
	switch {
	case nc.IsClosed():
	case nc.IsConnected() && (left == 0 || nc.ConnectedClusterName() == "" || mutation.CloseAtOnce):
		_ = in.sub.Drain()
	default:
		time.AfterFunc(left+pullPause, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.retire(in)
		})
	}
}

func (p *pull) deliver(in *inbox, m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := m.Header.Get("Status")
	ended := status != "" && len(m.Data) == 0
	if ended && m.Subject != in.reply() {
		return // of an earlier request, again
	}
	asked, old := in.asked, in != p.in
	in.asked = time.Time{}
	if !old {
		p.open = time.Time{}
	}
	if old || p.closing {
		defer p.retire(in)
	}
	if ended {
		if old {
			return
		}
		select {
		case p.ended <- status != "408" && status != "404":
		default:
		}
		return
	}
	got := &received{Msg: m, asked: asked, server: serverTag(p.consumer.q.nc), steady: p.consumer.q.bus.Availability().Steady()}
	if p.waiting {
		select {
		case p.got <- got:
			return
		default:
		}
	}
	if p.closing {
		p.consumer.gaveBack.Store(true)
	}
	got.release(p.consumer.e.Lease)
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
		m.release(p.consumer.e.Lease)
	default:
	}
}

// ask opens the pull unless it is open, or its end is still to come.
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
	p.in.number++
	if p.consumer.q.nc.PublishRequest(p.subject, p.in.reply(), p.body) == nil { // else nothing was sent
		p.in.asked, p.open = now, now.Add(p.consumer.pullExpires()+pullPatience)
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

func pullSubject(endpoint string, c job.Class) string {
	return bus.PullNext(streams.Jobs(endpoint), streams.Consumer(c))
}

// pullBody asks for one message.
func pullBody(expires time.Duration) []byte {
	return fmt.Appendf(nil, `{"batch":1,"expires":%d}`, expires.Nanoseconds())
}

// received is a delivery as it reached this process.
type received struct {
	*nats.Msg
	// asked is when its pull was asked for: the server sent it later. When it came
	// says nothing: it may have waited in a buffer of a suspended process, for longer
	// than a lease and than its job.
	asked time.Time
	// server is the start of the server that sent it, as in a record.
	server string
	// steady: service was steady when it came, so it was sent just before.
	steady bool
	// inBatch: the worker gets the job along with others.
	inBatch bool
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
