package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/streams"
)

const (
	// countEvery is the pause between two writes of counts.
	countEvery = 200 * time.Millisecond
	// countsPosition is the key, among the positions, of the last event that
	// all counts include.
	countsPosition = "counts"
	// keptMost bounds the counts that a fold remembers instead of reading them.
	keptMost = 10_000
)

// Durable returns once everything that was written to the stream before the
// call is on the disk; nil stands for a server that needs no asking.
type Durable func(ctx context.Context, stream string) error

// Count keeps the totals of all endpoints up to date, until ctx ends. Only
// events that are on the disk count. Several may run at once: each event
// counts once. It calls each, unless it is nil, for every event once it is
// counted, in their order; a crash may skip some, and several that count at
// once may each be told.
func (l *Log) Count(ctx context.Context, durable Durable, each func(Event)) error {
	f := &fold{l: l, durable: durable, each: each, known: map[string]kept{}}
	for ctx.Err() == nil {
		n, err := f.step(ctx)
		if n == pageMost && err == nil {
			continue
		}
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "events are not counted, trying again", "err", err)
			f.placed = false
		}
		select {
		case <-time.After(countEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

// fold is one run of Count.
type fold struct {
	l       *Log
	durable Durable
	each    func(Event)
	known   map[string]kept // by endpoint; a guess, which compare-and-set checks
	after   uint64          // the last event that is in all counts
	placed  bool            // after has been read
}

// step counts the next events and returns how many there were.
func (f *fold) step(ctx context.Context) (int, error) {
	if !f.placed {
		after, err := f.l.Position(ctx, countsPosition)
		if err != nil {
			return 0, err
		}
		f.after, f.placed = after, true
	}
	server := f.l.Server()
	page, err := f.l.page(ctx, f.after)
	if err != nil || len(page) == 0 {
		return 0, err
	}
	if f.durable != nil {
		if err := f.durable(ctx, streams.Events); err != nil {
			return 0, fmt.Errorf("wait for %s to be on the disk: %w", streams.Events, err)
		}
	}
	if f.l.Server() != server {
		return 0, fmt.Errorf("count events: %w: the server was started anew", ErrUnavailable)
	}
	for endpoint, list := range byEndpoint(page) {
		if err := f.add(ctx, endpoint, list); err != nil {
			return 0, err
		}
	}
	f.after = page[len(page)-1].Seq
	if err := f.l.SetPosition(ctx, countsPosition, f.after); err != nil {
		return 0, err
	}
	if f.each != nil {
		for _, e := range page {
			f.each(e)
		}
	}
	return len(page), nil
}

func byEndpoint(page []Event) map[string][]Event {
	lists := map[string][]Event{}
	for _, e := range page {
		lists[e.Endpoint] = append(lists[e.Endpoint], e)
	}
	return lists
}

// add counts the events of one endpoint that its counts do not include yet.
func (f *fold) add(ctx context.Context, endpoint string, list []Event) error {
	for {
		err := f.addOnce(ctx, endpoint, list)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// addOnce is add, or errChanged if somebody else counts as well.
func (f *fold) addOnce(ctx context.Context, endpoint string, list []Event) (err error) {
	k, ok := f.known[endpoint]
	if !ok {
		if k, err = f.l.counts(ctx, endpoint); err != nil {
			return err
		}
	}
	before := k.value
	for _, e := range list {
		k.value = k.value.with(e)
	}
	if k.value != before {
		if k.revision, err = f.l.putCounts(ctx, endpoint, k); err != nil {
			delete(f.known, endpoint)
			return err
		}
	}
	if len(f.known) >= keptMost {
		clear(f.known)
	}
	f.known[endpoint] = k
	return nil
}
