package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"flightline/shared/bus"
	"flightline/streams"
)

// Past is a part of an endpoint's history that is read from its newest end.
type Past struct {
	// Kinds are those wanted. None means all.
	Kinds []Kind
	// Since leaves out what was written before. The zero time means nothing.
	Since time.Time
	// Before is where to go on: what the call before returned as next. 0 means
	// the newest end.
	Before uint64
	// Most bounds the number of events; at least 1.
	Most int
}

// Before reads an endpoint's events backwards, in the order of EVENTS, the last
// one first. next is the Before of the following page, 0 after the last one; a
// page may be short or empty all the same, because the number of requests to
// the server is bounded. The log is at most about a second behind while a
// recorder runs. It returns bus.ErrUnavailable.
func (l *Log) Before(ctx context.Context, endpoint string, p Past) (page []Event, next uint64, err error) {
	p.Most = max(1, p.Most)
	if p.Before == 0 {
		last, err := l.lastSequence(ctx)
		if err != nil || last == 0 {
			return nil, 0, err
		}
		p.Before = last + 1
	}
	filters := []string{streams.EventFilter(endpoint, "", "")}
	if len(p.Kinds) > 0 {
		filters = filters[:0]
		for _, kind := range p.Kinds {
			filters = append(filters, streams.EventFilter(endpoint, string(kind), ""))
		}
	}
	for _, filter := range filters {
		some, until, err := l.walk(ctx, filter, p)
		if err != nil {
			return nil, 0, err
		}
		page, next = append(page, some...), max(next, until)
	}
	return newest(page, next, p.Most)
}

// newest takes the last events of walks that all have come down to next.
func newest(page []Event, next uint64, most int) ([]Event, uint64, error) {
	slices.SortFunc(page, func(a, b Event) int { return cmp.Compare(b.Seq, a.Seq) })
	if end := slices.IndexFunc(page, func(e Event) bool { return e.Seq < next }); end >= 0 {
		page = page[:end]
	}
	if len(page) > most {
		page, next = page[:most], page[most-1].Seq
	}
	return page, next, nil
}

// walk reads the events of one filter backwards.
func (l *Log) walk(ctx context.Context, filter string, p Past) ([]Event, uint64, error) {
	first, err := l.firstSince(ctx, filter, p.Since)
	if err != nil || first == 0 {
		return nil, 0, err
	}
	got, next, err := bus.Backwards(ctx, l.nc, bus.Back{
		Stream: streams.Events, Filter: filter, First: first, Before: p.Before, Most: p.Most, Data: true,
	})
	if err != nil {
		return nil, 0, away(ctx, "read events", err)
	}
	some := make([]Event, 0, len(got))
	for _, m := range got {
		e, err := decode(m)
		if err != nil {
			return nil, 0, err
		}
		some = append(some, e)
	}
	return some, next, nil
}

// lastSequence is that of the last event of all; 0 if none exists.
func (l *Log) lastSequence(ctx context.Context) (uint64, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	state, err := l.bus.StreamState(within, streams.Events)
	if err != nil {
		return 0, away(ctx, "look at "+streams.Events, err)
	}
	return state.LastSeq, nil
}

// firstSince is the sequence of the first event of the filter that was written
// at or after since; 0 if none exists.
func (l *Log) firstSince(ctx context.Context, filter string, since time.Time) (uint64, error) {
	if since.IsZero() {
		return 1, nil
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := l.bus.DirectSince(within, streams.Events, filter, since)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return 0, nil
	case err != nil:
		return 0, away(ctx, "read events", err)
	}
	return bus.Sequence(m), nil
}

// tailKeeps is how many of the newest events a tail remembers; who is further
// behind reads the log itself.
const tailKeeps = 4096

// Tail passes what is new in the log to any number of watchers, at the cost of one
// reader, and of none while nobody watches. It is safe for concurrent use.
type Tail struct {
	log     *Log
	durable Durable
	came    chan struct{} // has one if a watcher came

	mu       sync.Mutex
	watchers int
	// placed means that reached and recent are right; they are not before the
	// first look, nor after all watchers have left.
	placed bool
	// reached is the last event that may be passed on, recent those after from up to
	// it.
	from, reached uint64
	recent        []Event
	news          chan struct{} // closed when there are some
}

// NewTail makes a tail of the log. Only events that are on the disk are passed on,
// since others may vanish and their sequences be given to others; nil stands
// for a server that needs no asking. It starts nothing.
func NewTail(l *Log, durable Durable) *Tail {
	return &Tail{log: l, durable: durable, came: make(chan struct{}, 1), news: make(chan struct{})}
}

// Run reads what is new while somebody watches, until ctx ends. It sits out
// outages. Without it watchers see nothing.
func (t *Tail) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if !t.watched() {
			select {
			case <-t.came:
			case <-ctx.Done():
			}
			continue
		}
		n, err := t.step(ctx)
		t.log.rest(ctx, "tell new events", n, err)
	}
	return nil
}

// watched reports whether anybody watches; if not, what is known gets old.
func (t *Tail) watched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == 0 {
		t.placed, t.recent = false, nil
	}
	return t.watchers > 0
}

// step reads the next events and returns how many there were.
func (t *Tail) step(ctx context.Context) (int, error) {
	t.mu.Lock()
	placed, after := t.placed, t.reached
	t.mu.Unlock()
	server := t.log.Server()
	var page []Event
	var err error
	if placed {
		page, err = t.log.page(ctx, after)
	} else {
		after, err = t.log.lastSequence(ctx)
	}
	if err != nil || placed && len(page) == 0 {
		return 0, err
	}
	if err := t.safe(ctx, server); err != nil {
		return 0, err
	}
	t.add(after, page)
	return len(page), nil
}

// safe returns once what was read from a server is on the disk. It returns
// bus.ErrUnavailable if that is not known.
func (t *Tail) safe(ctx context.Context, server string) error {
	if t.durable != nil {
		if err := t.durable(ctx, streams.Events); err != nil {
			return away(ctx, "wait for "+streams.Events+" to be on the disk", err)
		}
	}
	if t.log.Server() != server {
		return fmt.Errorf("read events: %w: the server was restarted", bus.ErrUnavailable)
	}
	return nil
}

// add makes the events known that come after a sequence.
func (t *Tail) add(after uint64, page []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.placed {
		t.placed, t.from, t.reached = true, after, after
	}
	if len(page) > 0 {
		t.recent = append(t.recent, page...)
		t.reached = page[len(page)-1].Seq
	}
	if over := len(t.recent) - tailKeeps; over > 0 {
		t.from = t.recent[over-1].Seq
		t.recent = append(make([]Event, 0, tailKeeps+maxPage), t.recent[over:]...)
	}
	close(t.news)
	t.news = make(chan struct{})
}

// enter and leave count the watchers.
func (t *Tail) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers++
	select {
	case t.came <- struct{}{}:
	default:
	}
}

func (t *Tail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers--
}
