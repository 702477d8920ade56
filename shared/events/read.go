package events

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/streams"
)

const (
	// maxEntries and maxReadBytes bound what is read in one request.
	maxEntries   = 256
	maxReadBytes = 4 << 20
	// lagPause is the wait for a replica that has not got what the leader has.
	lagPause = 50 * time.Millisecond
	// anySubject is narrower than it could be, but the server need not match.
	anySubject = ">"
)

// Follow calls each for every event after the sequence after, in the order of the
// log, and for further ones as they come, about 0.1 s late. They need not be
// on the disk: with --sync interval or group a power loss may take back an event
// that was read, and give its sequence to another. It sits out an outage; it
// ends with nil when ctx ends, and with the error that each returned.
func (l *Log) Follow(ctx context.Context, after uint64, each func(Event) error) error {
	for ctx.Err() == nil {
		page, upTo, full, err := l.page(ctx, after)
		for _, e := range page {
			if err := each(e); err != nil {
				return err
			}
		}
		after = upTo
		l.rest(ctx, "follow events", full, err)
	}
	return nil
}

// rest waits before the next page: not at all if the last one was full.
func (l *Log) rest(ctx context.Context, doing string, full bool, err error) {
	pause := pollInterval
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "trying again", "doing", doing, "err", err)
		pause = retryDelay
	case full:
		return
	}
	_ = retry.Sleep(ctx, pause) // the caller's loop ends with ctx
}

// page reads the next events after a sequence; none is no error. upTo is the sequence to go
// on after. full: more follow.
func (l *Log) page(ctx context.Context, after uint64) (list []Event, upTo uint64, full bool, err error) {
	r := reading{filter: anySubject, from: entryAfter(after), most: maxEntries}
	some, err := l.read(ctx, r)
	if upTo = after; some.next > r.from {
		upTo = endOf(some.next - 1)
	}
	for _, entry := range some.entries {
		for _, e := range entry.Events {
			if e.Seq > after {
				list = append(list, e)
			}
		}
	}
	return list, upTo, some.more, err
}

// reading says which entries are read.
type reading struct {
	filter string
	// job leaves out entries that do not mention it, unless it is "".
	job  job.ID
	from uint64 // the first entry to look at
	most int    // entries
}

// read is what a reading brought.
type read struct {
	entries []Entry
	next    uint64 // the entry to go on with; reading.from if nothing was there
	more    bool   // the server has more already
}

// read reads the next entries. An entry that cannot be decoded is left out.
func (l *Log) read(ctx context.Context, r reading) (read, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	got, err := l.bus.BatchGet(within, streams.Events, bus.Batch{From: r.from, Filter: r.filter, Most: r.most, MaxBytes: maxReadBytes})
	if err != nil {
		return read{next: r.from}, away(ctx, "read events", err)
	}
	done := read{next: r.from, entries: make([]Entry, 0, len(got))}
	for _, m := range got {
		if r.job == "" || bytes.Contains(m.Data, []byte(r.job)) || strings.Contains(bus.SubjectOf(m), string(r.job)) {
			if entry, ok := l.decoded(ctx, m); ok {
				done.entries = append(done.entries, entry)
			}
		}
		done.next, done.more = bus.Sequence(m)+1, m.Header.Get(bus.PendingHeader) != "0"
	}
	return done, nil
}

// decoded is decode that warns of an entry that cannot be decoded: it must not keep those
// behind it from being read.
func (l *Log) decoded(ctx context.Context, m *nats.Msg) (entry Entry, ok bool) {
	entry, err := decode(m)
	if err != nil {
		l.log.WarnContext(ctx, "entry of the log of events cannot be decoded and is left out", "stream", streams.Events, "sequence", bus.Sequence(m), "err", err)
	}
	return entry, err == nil
}

// last is where the newest entry of a filter is. It asks the leader: a replica may
// not have the newest. It returns ErrNotFound if no entry matches.
func (l *Log) last(ctx context.Context, filter string) (seq uint64, written time.Time, err error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := l.bus.LeaderLast(within, streams.Events, filter)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return 0, time.Time{}, ErrNotFound
	case err != nil:
		return 0, time.Time{}, away(ctx, "read "+filter, err)
	}
	return m.Seq, m.Time, nil
}

// lastEntry is the sequence of the last entry that there ever was; 0 if none was.
func (l *Log) lastEntry(ctx context.Context) (uint64, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	state, err := l.bus.StreamState(within, streams.Events)
	if err != nil {
		return 0, away(ctx, "look at "+streams.Events, err)
	}
	return state.LastSeq, nil
}

// lastSequence is that of the last event of all; 0 if there never was one.
func (l *Log) lastSequence(ctx context.Context) (uint64, error) {
	last, err := l.lastEntry(ctx)
	if err != nil || last == 0 {
		return 0, err
	}
	return endOf(last), nil
}

// firstSince is the first entry of the filter that was written at or after since;
// 0 for an empty log.
func (l *Log) firstSince(ctx context.Context, filter string, since time.Time) (uint64, error) {
	if since.IsZero() {
		return 1, nil
	}
	for {
		within, cancel := context.WithTimeout(ctx, answerTimeout)
		m, err := l.bus.DirectSince(within, streams.Events, filter, since)
		cancel()
		switch {
		case err == nil:
			return bus.Sequence(m), nil
		case !errors.Is(err, bus.ErrNoMessage):
			return 0, away(ctx, "read events", err)
		}
		_, newest, err := l.last(ctx, filter)
		switch {
		case errors.Is(err, ErrNotFound), err == nil && newest.Before(since):
			return 0, nil
		case err != nil:
			return 0, err
		}
		if err := retry.Sleep(ctx, lagPause); err != nil { // a replica answered that has not got it yet
			return 0, away(ctx, "read events", err)
		}
	}
}

// scan calls each for the entries from r.from on up to the newest that the leader has,
// until it returns false. It moves r on to behind what was read.
func (l *Log) scan(ctx context.Context, r *reading, each func(Entry) (more bool)) error {
	r.most = maxEntries
	for {
		newest, _, err := l.last(ctx, r.filter)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := l.scanTo(ctx, r, newest, each); err != nil || !more || r.from > newest {
			return err
		}
		if err := retry.Sleep(ctx, lagPause); err != nil {
			return away(ctx, "read events", err)
		}
	}
}

// scanTo moves r on to behind the entry newest, or to what a replica has not got yet.
func (l *Log) scanTo(ctx context.Context, r *reading, newest uint64, each func(Entry) (more bool)) (more bool, err error) {
	for r.from <= newest {
		some, err := l.read(ctx, *r)
		if err != nil {
			return false, err
		}
		for _, entry := range some.entries {
			if !each(entry) {
				return false, nil
			}
		}
		if some.next == r.from { // the replica has not got it yet, or it was removed
			return true, nil
		}
		r.from = some.next
	}
	return true, nil
}

// Scan calls each for the entries from the sequence from on up to the newest that
// there is now, until it returns false. It returns bus.ErrUnavailable.
func (l *Log) Scan(ctx context.Context, from uint64, each func(Entry) (more bool)) error {
	return l.scan(ctx, &reading{filter: anySubject, from: max(1, from)}, each)
}

// ScanSince is Scan for the entries of an endpoint that were written at or after
// since, by the server's clock; those that do not mention the job are left out unless
// it is "". What it costs depends on what was written for the whole endpoint since.
func (l *Log) ScanSince(ctx context.Context, endpoint string, id job.ID, since time.Time, each func(Entry) (more bool)) error {
	filter := streams.EntryFilters(endpoint, "")[0]
	first, err := l.firstSince(ctx, filter, since)
	if err != nil || first == 0 {
		return err
	}
	return l.scan(ctx, &reading{filter: filter, job: id, from: first}, each)
}

// Last returns the latest event of a job of which nothing was written before since, and
// up to which entry the log was searched. A later search goes on behind that entry: what
// it costs depends on what was written for the whole endpoint in between. searched is 0
// before the first search. Last returns ErrNotFound for a job that has no event,
// also if it is too old, and bus.ErrUnavailable.
func (l *Log) Last(ctx context.Context, endpoint string, id job.ID, since time.Time, searched uint64) (last Event, upTo uint64, err error) {
	r := reading{filter: streams.EntryFilters(endpoint, "")[0], job: id}
	if r.from, err = l.firstAfter(ctx, r.filter, since, searched); err != nil || r.from == 0 {
		return Event{}, searched, cmp.Or(err, ErrNotFound)
	}
	err = l.scan(ctx, &r, func(entry Entry) bool {
		for _, e := range entry.Events {
			if e.Job == id {
				last = e
			}
		}
		return true
	})
	if err == nil && last.Kind == "" {
		err = ErrNotFound
	}
	return last, r.from - 1, err
}

// firstAfter is the entry behind one up to which the log was searched, or firstSince if
// that is 0 or the log was replaced.
func (l *Log) firstAfter(ctx context.Context, filter string, since time.Time, searched uint64) (uint64, error) {
	if searched > 0 {
		newest, _, err := l.last(ctx, filter)
		if err != nil || newest >= searched {
			return searched + 1, err
		}
	}
	return l.firstSince(ctx, filter, since)
}
