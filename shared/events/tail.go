package events

import (
	"context"
	"slices"
	"sync"

	"flightline/shared/bus/barrier"
	"flightline/shared/wakeup"
)

// maxTailEvents is how many of the newest events a tail remembers at least, and a quarter
// more at most but for the last page; who is further behind reads the log itself.
const maxTailEvents = 4096

// Tail passes what is new in the log to any number of watchers, at the cost of one
// reader, and of none while nobody watches. It is safe for concurrent use.
type Tail struct {
	log     *Log
	durable barrier.Func
	came    wakeup.Signal // a watcher came

	mu       sync.Mutex
	watchers int
	// placed means that reached and recent are right; they are not before the
	// first look, nor after all watchers have left.
	placed bool
	// reached is the sequence of the last event that may be passed on, recent those
	// after from up to it.
	from, reached uint64
	recent        []Event
	news          chan struct{} // closed when there are some
}

// NewTail makes a tail of the log. Only events that are on the disk are passed on,
// since others may vanish and their sequences be given to others; nil stands
// for a server that needs no asking. It starts nothing.
func NewTail(l *Log, durable barrier.Func) *Tail {
	return &Tail{log: l, durable: durable, came: wakeup.New(), news: make(chan struct{})}
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
		full, err := t.step(ctx)
		t.log.rest(ctx, "tell new events", full, err)
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

// step reads the next events. full: more follow.
func (t *Tail) step(ctx context.Context) (full bool, err error) {
	t.mu.Lock()
	placed, after := t.placed, t.reached
	t.mu.Unlock()
	server := t.log.Server()
	var page []Event
	var upTo uint64
	if placed {
		page, upTo, full, err = t.log.page(ctx, after)
	} else {
		upTo, err = t.log.lastSequence(ctx)
	}
	if err != nil || placed && upTo == after {
		return false, err
	}
	if err := t.log.safe(ctx, t.durable, server); err != nil {
		return false, err
	}
	t.add(page, upTo)
	return full, nil
}

// add makes events known, and that no others come up to a sequence.
func (t *Tail) add(page []Event, upTo uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.placed {
		t.placed, t.from = true, upTo
	}
	t.recent, t.reached = append(t.recent, page...), upTo
	if over := len(t.recent) - maxTailEvents; over > maxTailEvents/4 { // not for each: it moves all
		t.from = t.recent[over-1].Seq
		t.recent = slices.Delete(t.recent, 0, over)
	}
	close(t.news)
	t.news = make(chan struct{})
}

// enter and leave count the watchers.
func (t *Tail) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers++
	t.came.Send()
}

func (t *Tail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers--
}
