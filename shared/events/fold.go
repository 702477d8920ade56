package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"flightline/shared/bus/barrier"
	"flightline/shared/retry"
	"flightline/shared/stats"
	"flightline/shared/telemetry"
)

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
	// Durable makes that only events count that are on the disk. Nil stands for a server
	// that needs no asking.
	Durable barrier.Func
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
	f, outage := newFold(l, c), telemetry.NewOutageLog()
	for ctx.Err() == nil {
		full, err := f.step(ctx)
		if err == nil {
			err = f.stats.keep(ctx, f.after)
		}
		if full && err == nil {
			continue
		}
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, errChanged) { // by another recorder, or the endpoint was deleted
				l.log.InfoContext(ctx, "events are not counted, trying again", "err", err)
			} else {
				outage.Warn(ctx, l.log, "events are not counted, trying again", slog.Any("err", err))
			}
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
		if err := f.l.setPosition(ctx, countsPosition, f.after); err != nil {
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
