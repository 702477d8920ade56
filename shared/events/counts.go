package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/retry"
	"flightline/shared/stats"
	"flightline/streams"
)

// Totals counts the attempts of an endpoint that are over, since it was made.
type Totals struct {
	Completed int64 `json:"completed"`
	// Failed counts FAILED alone.
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	TimedOut  int64 `json:"timedOut"`
	// Retried counts pick-ups of an attempt after its first, and attempts
	// after a job's first once they are picked up or cancelled.
	Retried int64 `json:"retried"`
}

// counts is the value under an endpoint in the bucket.
type counts struct {
	Totals
	// Seq is that of the last entry of the log that changed the totals.
	Seq uint64 `json:"seq"`
	// Since is when an endpoint of this id was last deleted, in milliseconds:
	// what happens to its jobs afterwards is not the next one's.
	Since int64 `json:"since,omitempty"`
}

// with counts the events of an entry, unless they are counted already.
func (c counts) with(entry Entry) counts {
	if entry.Seq <= c.Seq {
		return c
	}
	before := c.Totals
	for _, e := range entry.Events {
		if e.Submitted.UnixMilli() > c.Since {
			c.Totals = c.Totals.with(e)
		}
	}
	if c.Totals != before {
		c.Seq = entry.Seq
	}
	return c
}

// with counts an event.
func (t Totals) with(e Event) Totals {
	switch e.Kind {
	case Completed:
		t.Completed++
	case Failed:
		t.Failed++
	case Cancelled:
		t.Cancelled++
	case TimedOut:
		t.TimedOut++
	case Started:
		if e.Run > 1 {
			t.Retried++
		}
	case Queued:
		if e.Attempt > 1 {
			t.Retried++
		}
	}
	return t
}

// Totals returns what is counted for an endpoint, zero if nothing is. While a
// recorder runs it is at most about a second behind. It returns bus.ErrUnavailable.
func (l *Log) Totals(ctx context.Context, endpoint string) (Totals, error) {
	kept, err := l.counts(ctx, endpoint)
	return kept.value.Totals, err
}

// TotalsOf is Totals of several endpoints, in few requests. Any replica may answer.
func (l *Log) TotalsOf(ctx context.Context, endpoints []string) (map[string]Totals, error) {
	subjects := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		subjects[i] = streams.KeySubject(streams.BucketCounts, endpoint)
	}
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	got, err := l.bus.LastWithData(within, streams.Bucket(streams.BucketCounts), subjects)
	if err != nil {
		return nil, away(ctx, "read the counts", err)
	}
	all := make(map[string]Totals, len(got))
	for _, m := range got {
		endpoint := strings.TrimPrefix(bus.SubjectOf(m), streams.KeySubject(streams.BucketCounts, ""))
		all[endpoint] = l.decodedCounts(ctx, endpoint, bus.Sequence(m), m.Data).Totals
	}
	return all, nil
}

// DropCounts forgets what was counted for an endpoint that is being deleted.
// now is the server's time, when it has no more jobs; an endpoint that is made
// again with the same id starts from zero. It returns bus.ErrUnavailable.
func (l *Log) DropCounts(ctx context.Context, endpoint string, now time.Time) error {
	for {
		kept, err := l.counts(ctx, endpoint)
		if err != nil {
			return err
		}
		kept.value.Totals, kept.value.Since = Totals{}, now.UnixMilli()
		_, err = l.putCounts(ctx, endpoint, kept)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// kept is a value with its revision, 0 if none exists yet.
type kept struct {
	value    counts
	revision uint64
}

// errChanged means that somebody else wrote the counts first.
var errChanged = errors.New("events: the counts have changed")

// counts reads the counts of an endpoint from the leader: a replica may not have those that
// its deletion left.
func (l *Log) counts(ctx context.Context, endpoint string) (kept, error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := l.bus.LeaderLast(within, streams.Bucket(streams.BucketCounts), streams.KeySubject(streams.BucketCounts, endpoint))
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return kept{}, nil
	case err != nil:
		return kept{}, away(ctx, "read counts of "+endpoint, err)
	}
	return kept{l.decodedCounts(ctx, endpoint, m.Seq, m.Data), m.Seq}, nil
}

// decodedCounts reads counts. Those that cannot be decoded begin again, with a warning: they
// must not keep those of other endpoints from being counted.
func (l *Log) decodedCounts(ctx context.Context, endpoint string, seq uint64, data []byte) (c counts) {
	if err := json.Unmarshal(data, &c); err != nil {
		l.log.WarnContext(ctx, "counts cannot be decoded and begin again", "endpoint", endpoint, "stream", streams.Bucket(streams.BucketCounts), "sequence", seq, "err", err)
		return counts{}
	}
	return c
}

// putCounts writes k's value over its revision and returns the new one;
// errChanged if that is not the last.
func (l *Log) putCounts(ctx context.Context, endpoint string, k kept) (uint64, error) {
	data, err := json.Marshal(k.value)
	if err != nil {
		return 0, fmt.Errorf("write counts of %s: %w", endpoint, err)
	}
	m := &nats.Msg{Subject: streams.KeySubject(streams.BucketCounts, endpoint), Data: data, Header: nats.Header{}}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	revision, err := l.bus.Publish(within, streams.Bucket(streams.BucketCounts), m, k.revision)
	switch {
	case errors.Is(err, bus.ErrConflict):
		return 0, errChanged
	case err != nil:
		return 0, away(ctx, "write counts of "+endpoint, err)
	}
	return revision, nil
}

const (
	// countInterval is the pause between two writes of counts.
	countInterval = 200 * time.Millisecond
	// countsPosition is the key, among the positions, of the last entry that
	// all counts include.
	countsPosition = "counts"
	// maxKnownCounts bounds the counts that a fold remembers instead of reading them.
	maxKnownCounts = 10_000
)

// Counting is what Count needs besides the log. The zero value is good.
type Counting struct {
	// Durable makes that only events count that are on the disk.
	Durable Durable
	// Each is called for every event once it is counted, in their order; a crash may
	// skip some, and several that count at once may each pass it. nil does without.
	Each func(Event)
	// Sample looks at the workers of all endpoints. nil leaves them out of the points.
	Sample func(context.Context) ([]stats.Sample, error)
	// Now is the server's time. nil is time.Now.
	Now func() time.Time
	// SaveInterval is the pause between two writes of how far STATS has the log, which
	// Trim removes nothing behind. 0 is a minute.
	SaveInterval time.Duration
}

// Count keeps the totals of all endpoints up to date, and STATS, until ctx ends. Several
// may run at once: each event counts once.
func (l *Log) Count(ctx context.Context, c Counting) error {
	f := newFold(l, c)
	for ctx.Err() == nil {
		full, err := f.step(ctx)
		if err == nil {
			err = f.stats.keep(ctx, f.after)
		}
		if full && err == nil {
			continue
		}
		if err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if errors.Is(err, errChanged) { // by another recorder, or the endpoint was deleted
				level = slog.LevelInfo
			}
			l.log.Log(ctx, level, "events are not counted, trying again", "err", err)
			f.placed = false
		}
		_ = retry.Sleep(ctx, countInterval) // the loop ends with ctx
	}
	return nil
}

// fold is one run of Count. It begins at the earlier of two positions, that of the
// counts and that of STATS: each value says itself which entries it includes.
type fold struct {
	Counting

	l       *Log
	stats   *statsFold
	known   map[string]kept // by endpoint; a guess, which compare-and-set checks
	after   uint64          // the last entry that was read
	counted uint64          // the last entry that is in all counts
	server  string          // that everything since the position was read from and written to
	placed  bool            // the positions have been read
}

func newFold(l *Log, c Counting) *fold {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.SaveInterval = cmp.Or(c.SaveInterval, saveInterval)
	known := map[string]kept{}
	return &fold{Counting: c, l: l, stats: newStatsFold(l, c, known), known: known}
}

// start goes back to what is on the bus.
func (f *fold) start(ctx context.Context) error {
	f.server = f.l.Server()
	counted, err := f.l.Position(ctx, countsPosition)
	if err != nil {
		return err
	}
	folded, err := f.stats.start(ctx, counted)
	if err != nil {
		return err
	}
	clear(f.known)
	f.stats.reset()
	f.after, f.counted, f.placed = min(counted, folded), counted, true
	return nil
}

// step counts the next entries. full: more follow.
func (f *fold) step(ctx context.Context) (full bool, err error) {
	if !f.placed {
		if err := f.start(ctx); err != nil {
			return false, err
		}
	}
	page, err := f.l.read(ctx, reading{filter: anySubject, from: f.after + 1, most: maxEntries})
	if err != nil || page.next == f.after+1 {
		return false, err
	}
	if err := f.l.safe(ctx, f.Durable, f.server); err != nil {
		return false, err
	}
	lists := map[string][]Entry{}
	for _, entry := range page.entries {
		lists[entry.Endpoint] = append(lists[entry.Endpoint], entry)
	}
	for endpoint, list := range lists {
		if err := f.add(ctx, endpoint, list); err != nil {
			return false, err
		}
	}
	before := f.counted
	if f.after = page.next - 1; f.after > f.counted {
		if err := f.l.SetPosition(ctx, countsPosition, f.after); err != nil {
			return false, err
		}
		f.counted = f.after
	}
	f.pass(page.entries, before)
	return page.more, nil
}

// pass calls Each for what is counted, unless it was counted before this run.
func (f *fold) pass(entries []Entry, counted uint64) {
	if f.Each == nil {
		return
	}
	for _, entry := range entries {
		if entry.Seq <= counted {
			continue
		}
		for _, e := range entry.Events {
			f.Each(e)
		}
	}
}

// add counts the entries of one endpoint that its counts do not include yet, and adds
// them to its blocks.
func (f *fold) add(ctx context.Context, endpoint string, list []Entry) error {
	for {
		err := f.addOnce(ctx, endpoint, list)
		if err == nil {
			return f.stats.add(ctx, f.known[endpoint].value.Since, list)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// addOnce is add, or errChanged if somebody else counts as well.
func (f *fold) addOnce(ctx context.Context, endpoint string, list []Entry) (err error) {
	k, ok := f.known[endpoint]
	if !ok {
		if k, err = f.l.counts(ctx, endpoint); err != nil {
			return err
		}
	}
	before := k.value
	for _, entry := range list {
		k.value = k.value.with(entry)
	}
	if k.value != before {
		if k.revision, err = f.l.putCounts(ctx, endpoint, k); err != nil {
			delete(f.known, endpoint)
			return err
		}
	}
	if len(f.known) >= maxKnownCounts {
		clear(f.known)
	}
	f.known[endpoint] = k
	return nil
}
