package events

import (
	"context"
	"slices"
	"time"

	"flightline/shared/job"
	"flightline/streams"
)

// Firsts says which jobs Firsts of a Log looks for.
type Firsts struct {
	// ID is what their ids begin with (job.ID.Begins), From and To when these were made up.
	ID       string
	From, To time.Time
	// After is where to go on: what the call before returned as next. 0 means From.
	After uint64
	// Most bounds the number of jobs; at least 1.
	Most int
}

// maxFirstReads bounds the requests of one call of Firsts.
const maxFirstReads = 4

// Firsts lists jobs of an endpoint in the order in which the log has their first event, which
// comes when they first run or end. next is the After of the following page, 0 at the end of
// the log; a page may be short or empty all the same. It goes forward from the place of From,
// so what it costs does not depend on how many jobs there were before or are after; a job that
// waited for long is on a later page. It returns bus.ErrUnavailable.
func (l *Log) Firsts(ctx context.Context, endpoint string, w Firsts) (ids []job.ID, next uint64, err error) {
	filter := streams.EntryFilters(endpoint, "")[0]
	if w.After == 0 {
		first, err := l.firstSince(ctx, filter, w.From.Add(-ClockSlack))
		if err != nil || first == 0 {
			return nil, 0, err
		}
		w.After = endOf(first - 1)
	}
	r := reading{filter: filter, from: entryAfter(w.After), most: maxEntries}
	for range maxFirstReads {
		got, err := l.read(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		var full bool
		if ids, full = w.add(ids, got.entries); full {
			return ids, w.After, nil
		}
		if !got.more {
			return ids, 0, nil
		}
		r.from = got.next
		if n := len(got.entries); len(ids) > 0 && got.entries[n-1].Written.After(w.To.Add(ClockSlack)) {
			break // those that did not wait are found
		}
	}
	return ids, w.After, nil
}

// add adds the jobs of entries to ids and moves After on, until there are enough.
func (w *Firsts) add(ids []job.ID, entries []Entry) (all []job.ID, full bool) {
	for _, entry := range entries {
		for _, e := range entry.Events {
			if e.Seq <= w.After || !w.has(e) || slices.Contains(ids, e.Job) {
				continue
			}
			if len(ids) >= max(1, w.Most) {
				return ids, true
			}
			ids, w.After = append(ids, e.Job), e.Seq
		}
		w.After = endOf(entry.Seq)
	}
	return ids, false
}

// has reports whether an event is the first one of such a job.
func (w Firsts) has(e Event) bool { return e.Kind == Queued && e.Attempt == 1 && e.Job.Begins(w.ID) }

// PlaceAt is the sequence that the events of an endpoint come before which were written before
// t, as Before of a Past; 0 if nothing was written since. It returns bus.ErrUnavailable.
func (l *Log) PlaceAt(ctx context.Context, endpoint string, t time.Time) (uint64, error) {
	first, err := l.firstSince(ctx, streams.EntryFilters(endpoint, "")[0], t)
	return first << placeBits, err
}
