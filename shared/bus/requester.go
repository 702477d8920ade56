package bus

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// maxFreeInboxes is how many inboxes wait for their next request.
	maxFreeInboxes = 256
	// inboxCapacity is how many answers fit into an inbox. One is expected; more
	// come only where two servers each believe to lead a stream.
	inboxCapacity = 8
)

// noResponders is the status that the server answers with if nobody listens.
const noResponders = "503"

// requester sends requests. A request of nats.go is answered by a goroutine that
// serves all requests of the connection, and bounded by a context of its own; an
// inbox of a requester brings its answer to the caller, and keeps its timer. That is
// worth a twentieth of a job's CPU time.
type requester struct {
	mu   sync.Mutex
	free []*inbox
}

// inbox serves one request at a time.
type inbox struct {
	subject string // ends in a dot; the number of the request follows
	sent    uint64
	answers chan *nats.Msg
	sub     *nats.Subscription
	timeout *time.Timer
}

// ask sends m and returns the answer. It returns ctx.Err(), nats.ErrTimeout
// after RequestTimeout, nats.ErrNoResponders, or an error of the connection.
func (r *requester) ask(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := r.take(nc)
	if err != nil {
		return nil, err
	}
	defer r.put(l)
	l.discard()
	l.sent++
	m.Reply = l.subject + strconv.FormatUint(l.sent, 10)
	if err := nc.PublishMsg(m); err != nil {
		return nil, err
	}
	l.timeout.Reset(RequestTimeout)
	defer l.timeout.Stop()
	for {
		select {
		case answer := <-l.answers:
			switch {
			case answer.Subject != m.Reply:
				continue // to an earlier request, which timed out
			case len(answer.Data) == 0 && answer.Header.Get("Status") == noResponders:
				return nil, nats.ErrNoResponders
			}
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.timeout.C:
			return nil, nats.ErrTimeout
		}
	}
}

// discard drops what came after the last answer.
func (l *inbox) discard() {
	for {
		select {
		case <-l.answers:
		default:
			return
		}
	}
}

func (r *requester) take(nc *nats.Conn) (*inbox, error) {
	r.mu.Lock()
	if n := len(r.free); n > 0 {
		l := r.free[n-1]
		r.free = r.free[:n-1]
		r.mu.Unlock()
		return l, nil
	}
	r.mu.Unlock()
	l := &inbox{subject: nc.NewInbox() + ".", answers: make(chan *nats.Msg, inboxCapacity), timeout: time.NewTimer(RequestTimeout)}
	l.timeout.Stop()
	var err error
	l.sub, err = nc.ChanSubscribe(l.subject+"*", l.answers)
	return l, err
}

func (r *requester) put(l *inbox) {
	r.mu.Lock()
	if len(r.free) < maxFreeInboxes {
		r.free = append(r.free, l)
		l = nil
	}
	r.mu.Unlock()
	if l != nil {
		_ = l.sub.Unsubscribe()
	}
}
