package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"flightline/streams"
)

const (
	// codeThere is the server's error code for an event that is there already.
	codeThere = 10071
	// window is how many events are on their way to the server at once.
	window = 512
)

// Append writes the events that are not in the log yet. Those of one job get
// there in the order given, each once the one before is acknowledged; those of
// different jobs side by side. It returns nil when all are there, and else
// ErrUnavailable or ctx's error: some may be there then, and it can be
// repeated. The server's own setting decides when they are on the disk.
func (l *Log) Append(ctx context.Context, list ...Event) error {
	if len(list) == 0 {
		return nil
	}
	p, err := l.openPipe()
	if err != nil {
		return away(ctx, "append events", err)
	}
	defer p.close()
	for _, wave := range waves(list) {
		if err := p.send(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// waves splits the list so that no wave has two events of one job, and each
// job's come in order.
func waves(list []Event) [][]Event {
	type key struct{ endpoint, id string }
	var waves [][]Event
	next := make(map[key]int, len(list))
	for _, e := range list {
		k := key{e.Endpoint, string(e.Job)}
		n := next[k]
		next[k] = n + 1
		if n == len(waves) {
			waves = append(waves, nil)
		}
		waves[n] = append(waves[n], e)
	}
	return waves
}

// pipe sends many writes without waiting for each answer. It has an inbox of
// its own, so answers that come too late reach nobody.
type pipe struct {
	nc    *nats.Conn
	sub   *nats.Subscription
	inbox string
	sent  int
}

func (l *Log) openPipe() (*pipe, error) {
	p := &pipe{nc: l.nc, inbox: l.nc.NewInbox()}
	var err error
	p.sub, err = l.nc.SubscribeSync(p.inbox + ".*")
	return p, err
}

func (p *pipe) close() { _ = p.sub.Unsubscribe() } // it fails with the connection, which took it along

// send returns once all of the wave are acknowledged or were there.
func (p *pipe) send(ctx context.Context, wave []Event) error {
	waiting := 0
	for _, e := range wave {
		if waiting == window {
			if err := p.settle(ctx); err != nil {
				return err
			}
			waiting--
		}
		m, err := e.message()
		if err != nil {
			return err
		}
		p.sent++
		m.Reply = p.inbox + "." + strconv.Itoa(p.sent)
		if err := p.nc.PublishMsg(m); err != nil {
			return away(ctx, "append events", err)
		}
		waiting++
	}
	for range waiting {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle takes one answer. Whose it is does not matter: one failure makes all
// be sent again.
func (p *pipe) settle(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m, err := p.sub.NextMsgWithContext(within)
	if err != nil {
		return away(ctx, "append events", err)
	}
	if len(m.Data) == 0 { // no responders
		return away(ctx, "append events", nats.ErrNoResponders)
	}
	var ack struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("append to %s: %w", streams.Events, err)
	}
	if ack.Error == nil || ack.Error.ErrorCode == codeThere {
		return nil
	}
	// Another write of the same event may be in flight, and may still fail.
	return away(ctx, "append events", ack.Error)
}
