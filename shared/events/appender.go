package events

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
)

// ErrOvertaken means that another process has appended to the log: what this one
// believes to be in it is not all.
var ErrOvertaken = errors.New("events: another process has appended to the log")

// Appender appends to the log as long as no other process does. What was in
// the log before, up to Last, its owner has to know: an event that is appended twice
// is there twice. It is safe for concurrent use.
type Appender struct {
	l *Log

	mu   sync.Mutex
	last uint64 // the last entry
	err  error  // why nothing is appended any more
}

// NewAppender returns an appender. It returns bus.ErrUnavailable.
func (l *Log) NewAppender(ctx context.Context) (*Appender, error) {
	last, err := l.lastEntry(ctx)
	if err != nil {
		return nil, err
	}
	return &Appender{l: l, last: last}, nil
}

// Append appends events of which none is in the log, once, with an appender of its
// own. Its errors are those of Appender.Append.
func (l *Log) Append(ctx context.Context, list ...Event) error {
	a, err := l.NewAppender(ctx)
	if err != nil {
		return err
	}
	return a.Append(ctx, 0, 0, list...) // of partition 0, and no claim about earlier ones
}

// Last is the sequence of the last entry that this appender knows of, in EVENTS. 0
// means that there was none.
func (a *Appender) Last() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// Alone returns ErrOvertaken if another process has appended by now, and
// bus.ErrUnavailable.
func (a *Appender) Alone(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, err := a.l.lastEntry(ctx)
	if err == nil && last != a.last {
		err = ErrOvertaken
	}
	return err
}

// Append writes events, those of an endpoint in the order given, which were made of the
// records of partition. The events of all writes to those records up to the sequence
// recordsAfter are in the log before these; 0 promises nothing of them. It returns nil
// when all are there. After an error some may be there, in the order of writing, and the
// appender appends no more: a new one has to read them first. It returns ErrOvertaken, bus.ErrUnavailable or ctx's error. The
// server's own setting decides when they are on the disk.
func (a *Appender) Append(ctx context.Context, partition int, recordsAfter uint64, list ...Event) error {
	if len(list) == 0 {
		return nil
	}
	messages, err := entriesOfAll(list, partition, recordsAfter)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = a.send(ctx, messages)
	}
	return a.err
}

// entriesOfAll writes the events of several endpoints as messages of the log.
func entriesOfAll(list []Event, partition int, recordsAfter uint64) ([]*nats.Msg, error) {
	var messages []*nats.Msg
	endpoints, lists := byEndpoint(list)
	for _, endpoint := range endpoints {
		some, err := entriesOf(lists[endpoint], partition, recordsAfter)
		if err != nil {
			return nil, err
		}
		messages = append(messages, some...)
	}
	return messages, nil
}

// byEndpoint sorts events by their endpoints, which come in the order of their first
// events.
func byEndpoint(list []Event) (endpoints []string, lists map[string][]Event) {
	lists = map[string][]Event{}
	for _, e := range list {
		if _, ok := lists[e.Endpoint]; !ok {
			endpoints = append(endpoints, e.Endpoint)
		}
		lists[e.Endpoint] = append(lists[e.Endpoint], e)
	}
	return endpoints, lists
}

// send appends one message after the other. To have several under way would let in the
// second one after the first was refused, if another process has appended as many.
func (a *Appender) send(ctx context.Context, messages []*nats.Msg) error {
	for _, m := range messages {
		within, cancel := context.WithTimeout(ctx, answerTimeout)
		ack, err := a.l.js.PublishMsg(within, m, jetstream.WithExpectLastSequence(a.last))
		cancel()
		if bus.IsConflict(err) {
			return ErrOvertaken
		}
		if err != nil {
			return away(ctx, "append events", err)
		}
		a.last = ack.Sequence
	}
	return nil
}
