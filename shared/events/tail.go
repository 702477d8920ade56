package events

import (
	"context"
	"fmt"
	"sync"

	"flightline/streams"
)

// tailKeeps is how many of the newest events a tail remembers; who is further
// behind reads the log itself.
const tailKeeps = 4096

// Tail tells any number of watchers what is new in the log, at the cost of one
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
	// reached is the last event that may be told, recent those after from up to
	// it.
	from, reached uint64
	recent        []Event
	news          chan struct{} // closed when there are some
}

// NewTail makes a tail of the log. Only events that are on the disk are told,
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
// ErrUnavailable if that is not known.
func (t *Tail) safe(ctx context.Context, server string) error {
	if t.durable != nil {
		if err := t.durable(ctx, streams.Events); err != nil {
			return away(ctx, "wait for "+streams.Events+" to be on the disk", err)
		}
	}
	if t.log.Server() != server {
		return fmt.Errorf("read events: %w: the server was started anew", ErrUnavailable)
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
		t.recent = append(make([]Event, 0, tailKeeps+pageMost), t.recent[over:]...)
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
