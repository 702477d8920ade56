package events

import (
	"cmp"
	"context"
	"slices"
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
