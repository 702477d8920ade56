package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"flightline/shared/bus"
	"flightline/shared/wakeup"
	"flightline/streams"
)

// Past is a part of an endpoint's history that is read from its newest end.
type Past struct {
	// Kinds are those wanted. None means all.
	Kinds []Kind
	// Since leaves out what was written before. The zero time means nothing.
	Since time.Time
	// Before is where to go on: what the call before returned as next, or the
	// sequence of an event. 0 means the newest end.
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
		last, err := l.lastEntry(ctx)
		if err != nil || last == 0 {
			return nil, 0, err
		}
		p.Before = endOf(last) + 1
	}
	kinds := p.Kinds
	if len(kinds) == 0 {
		kinds = []Kind{""}
	}
	for _, kind := range kinds {
		for _, filter := range streams.EntryFilters(endpoint, string(kind)) {
			some, until, err := l.walk(ctx, filter, kind, p)
			if err != nil {
				return nil, 0, err
			}
			page, next = append(page, some...), max(next, until)
		}
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

// maxWalkEntries is how many entries a walk reads at once, maxWalks how often.
const maxWalkEntries, maxWalks = 16, 16

// walk reads the events of a kind, "" for all, in the entries of one filter
// backwards, until there are enough. next is 0 at the oldest entry.
func (l *Log) walk(ctx context.Context, filter string, kind Kind, p Past) (some []Event, next uint64, err error) {
	first, err := l.firstSince(ctx, filter, p.Since)
	if err != nil || first == 0 {
		return nil, 0, err
	}
	next = p.Before
	for range maxWalks {
		within, cancel := bus.Bounded(ctx)
		got, before, err := l.bus.Backwards(within, bus.Back{
			Stream: streams.Events, Filter: filter, First: first, Before: (next-1)>>placeBits + 1, Most: min(p.Most, maxWalkEntries), Data: true,
		})
		cancel()
		if err != nil {
			return nil, 0, away(ctx, "read events", err)
		}
		for _, m := range got {
			if entry, ok := l.decoded(ctx, m); ok {
				some = append(some, entry.backwards(kind, p.Before)...)
			}
		}
		if next = before << placeBits; next == 0 || len(some) >= p.Most {
			break
		}
	}
	return some, next, nil
}

// backwards lists an entry's events of a kind, "" for all, before a sequence, the last
// one first.
func (entry Entry) backwards(kind Kind, before uint64) (list []Event) {
	for _, e := range slices.Backward(entry.Events) {
		if e.Seq < before && (kind == "" || e.Kind == kind) {
			list = append(list, e)
		}
	}
	return list
}

// tailKeeps is how many of the newest events a tail remembers; who is further
// behind reads the log itself.
const tailKeeps = 4096

// Tail passes what is new in the log to any number of watchers, at the cost of one
// reader, and of none while nobody watches. It is safe for concurrent use.
type Tail struct {
	log     *Log
	durable Durable
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
func NewTail(l *Log, durable Durable) *Tail {
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
	if err := t.safe(ctx, server); err != nil {
		return false, err
	}
	t.add(page, upTo)
	return full, nil
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

// add makes events known, and that no others come up to a sequence.
func (t *Tail) add(page []Event, upTo uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.placed {
		t.placed, t.from = true, upTo
	}
	t.recent, t.reached = append(t.recent, page...), upTo
	if over := len(t.recent) - tailKeeps; over > 0 {
		t.from = t.recent[over-1].Seq
		t.recent = slices.Clone(t.recent[over:])
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
