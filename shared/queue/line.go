package queue

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// linesKept is how many lines wait for their next question.
	linesKept = 256
	// lineHolds is how many answers fit into a line. One is expected; more
	// come only where two servers each believe to lead a stream.
	lineHolds = 8
)

// noResponders is the status that the server answers with if nobody listens.
const noResponders = "503"

// lines are the ways to ask the server. A request of nats.go is answered by a
// goroutine that serves all requests of the connection, and bounded by a
// context of its own; a line brings its answer to whoever asked, and has a
// timer that it keeps. That is worth a twentieth of a job's CPU time.
type lines struct {
	mu   sync.Mutex
	free []*line
}

// line serves one question at a time.
type line struct {
	inbox   string // ends in a dot; the question's number follows
	asked   uint64
	answers chan *nats.Msg
	sub     *nats.Subscription
	late    *time.Timer
}

// ask sends m and returns the answer. It returns ctx.Err(), nats.ErrTimeout
// after tryWithin, nats.ErrNoResponders, or an error of the connection.
func (ls *lines) ask(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := ls.take(nc)
	if err != nil {
		return nil, err
	}
	defer ls.put(l)
	l.forget()
	l.asked++
	m.Reply = l.inbox + strconv.FormatUint(l.asked, 10)
	if err := nc.PublishMsg(m); err != nil {
		return nil, err
	}
	l.late.Reset(tryWithin)
	defer l.late.Stop()
	for {
		select {
		case answer := <-l.answers:
			switch {
			case answer.Subject != m.Reply:
				continue // to an earlier question, which has had enough of waiting
			case len(answer.Data) == 0 && answer.Header.Get("Status") == noResponders:
				return nil, nats.ErrNoResponders
			}
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.late.C:
			return nil, nats.ErrTimeout
		}
	}
}

// forget throws away what came after the last answer.
func (l *line) forget() {
	for {
		select {
		case <-l.answers:
		default:
			return
		}
	}
}

func (ls *lines) take(nc *nats.Conn) (*line, error) {
	ls.mu.Lock()
	if n := len(ls.free); n > 0 {
		l := ls.free[n-1]
		ls.free = ls.free[:n-1]
		ls.mu.Unlock()
		return l, nil
	}
	ls.mu.Unlock()
	l := &line{inbox: nc.NewInbox() + ".", answers: make(chan *nats.Msg, lineHolds), late: time.NewTimer(tryWithin)}
	l.late.Stop()
	var err error
	l.sub, err = nc.ChanSubscribe(l.inbox+"*", l.answers)
	return l, err
}

func (ls *lines) put(l *line) {
	ls.mu.Lock()
	if len(ls.free) < linesKept {
		ls.free = append(ls.free, l)
		l = nil
	}
	ls.mu.Unlock()
	if l != nil {
		_ = l.sub.Unsubscribe()
	}
}
