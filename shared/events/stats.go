package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/pod"
	"flightline/shared/stats"
	"flightline/streams"
)

const (
	// statsInterval is the pause between two writes of a block, saveInterval that
	// between two writes of the position, and of a block of hours unless it has a sample.
	statsInterval, saveInterval = 5 * time.Second, time.Minute
	// sampleInterval is the pause between two looks at the workers.
	sampleInterval = 15 * time.Second
	// statsPosition is the key, among the positions, of the last entry that all
	// blocks include.
	statsPosition = "stats"
	// maxConcurrentBlocks bounds the blocks that are written side by side.
	maxConcurrentBlocks = 16
	// maxKnownBlocks bounds the blocks in memory: with more of them all are written.
	maxKnownBlocks = 50_000
)

// statsFold folds the log into the blocks of STATS. Blocks are kept in memory between
// two writes; each says up to which entry it was folded, and is written by
// compare-and-set. So entries may be read again, and two may fold at once.
type statsFold struct {
	Counting

	l                      *Log
	known                  map[blockKey]*knownBlock
	counts                 map[string]kept // those that the fold knows, by endpoint
	written, saved, looked time.Time
	position               uint64
}

// knownBlock is a block with its revision, 0 if none exists yet.
type knownBlock struct {
	block

	revision uint64
	changed  bool  // since it was written
	sampled  bool  // since it was written; the log does not have it
	used     bool  // since the position was written
	since    int64 // counts.Since of the endpoint as the fold knew it, while revision is 0
}

func newStatsFold(l *Log, c Counting, counts map[string]kept) *statsFold {
	f := &statsFold{Counting: c, l: l, counts: counts}
	f.reset()
	return f
}

// reset forgets what is not on the bus.
func (f *statsFold) reset() {
	f.known = map[blockKey]*knownBlock{}
	f.written, f.saved = f.Now(), f.Now()
	f.looked = time.Time{} // the last look may not be in all blocks
}

// start returns the entry up to which all blocks have the log. Where STATS never was, it
// begins at the entry counted: to read all of a long log would hold up the counts.
func (f *statsFold) start(ctx context.Context, counted uint64) (uint64, error) {
	data, err := f.l.positionValue(ctx, statsPosition)
	if err != nil {
		return 0, err
	}
	if data == nil {
		return counted, f.l.setPosition(ctx, statsPosition, counted)
	}
	return f.l.Position(ctx, statsPosition)
}

// add folds entries of one endpoint, but no job that was submitted at or before since,
// in Unix milliseconds: it was of an endpoint that was deleted.
func (f *statsFold) add(ctx context.Context, since int64, list []Entry) error {
	for _, entry := range list {
		into := entryFold{f, entry, map[blockKey]*knownBlock{}}
		for _, e := range entry.Events {
			if e.Submitted.UnixMilli() <= since {
				continue
			}
			if err := into.add(ctx, e); err != nil {
				return err
			}
		}
		into.end()
	}
	return nil
}

// entryFold is the fold of one entry. into has the blocks that do not include it yet,
// and nil for those that do.
type entryFold struct {
	*statsFold

	entry Entry
	into  map[blockKey]*knownBlock
}

// add adds one event to its blocks.
func (f entryFold) add(ctx context.Context, e Event) error {
	for _, kind := range []streams.StatsKind{streams.StatsMinutes, streams.StatsHours} {
		key := keyAt(e.Endpoint, kind, "", e.At)
		b, err := f.block(ctx, key)
		if err != nil {
			return err
		}
		if b != nil {
			count(b.point(key, e.At), e)
		}
	}
	if !e.Status.Terminal() {
		return nil
	}
	if pod.ValidID(e.Worker) {
		if err := f.index(ctx, streams.StatsWorker, e.Worker, e); err != nil {
			return err
		}
	}
	if e.Kind != Failed || e.Cause == "" {
		return nil
	}
	failures, err := f.block(ctx, keyAt(e.Endpoint, streams.StatsFailures, "", e.At))
	if err != nil {
		return err
	}
	name := stats.Fingerprint(e.Cause)
	if failures != nil {
		name = failures.Failures.Add(string(e.Job), e.Cause, e.At)
	}
	if name == stats.Other {
		return nil
	}
	return f.index(ctx, streams.StatsFingerprint, name, e)
}

// index notes that the entry has an end of the worker or the fingerprint. Its block is
// that of the time at which the entry was written, so later blocks have later entries.
func (f entryFold) index(ctx context.Context, kind streams.StatsKind, name string, e Event) error {
	if f.Now().After(e.RetainUntil) {
		return nil // the job can no longer be read
	}
	b, err := f.block(ctx, keyAt(e.Endpoint, kind, name, f.entry.Written))
	if b != nil {
		b.Entries.add(f.entry.Seq)
		b.Until = max(b.Until, e.RetainUntil.UnixMilli())
	}
	return err
}

// block is a block that the entry is to be added to, nil if it is in it, or the block
// is so old that it is gone.
func (f entryFold) block(ctx context.Context, key blockKey) (*knownBlock, error) {
	if b, looked := f.into[key]; looked {
		return b, nil
	}
	b, err := f.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if f.entry.Seq <= b.Seq || key.name == "" && !f.Now().Before(b.expires(key)) {
		b = nil
	}
	f.into[key] = b
	return b, nil
}

// end notes that the blocks include the entry.
func (f entryFold) end() {
	for _, b := range f.into {
		if b != nil {
			b.Seq, b.changed = f.entry.Seq, true
		}
	}
}

// read returns a block from memory or from the bus.
func (f *statsFold) read(ctx context.Context, key blockKey) (*knownBlock, error) {
	if b := f.known[key]; b != nil {
		b.used = true
		return b, nil
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	b := &knownBlock{used: true}
	m, err := f.l.bus.LeaderLast(within, streams.Stats, key.subject())
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		k, counted := f.counts[key.endpoint]
		if !counted {
			if k, err = f.l.counts(ctx, key.endpoint); err != nil {
				return nil, err
			}
		}
		b.since = k.value.Since
	case err != nil:
		return nil, away(ctx, "read "+key.subject(), err)
	default:
		b.block, b.revision = *f.l.decodedBlock(ctx, key.subject(), m.Seq, m.Data), m.Seq
	}
	f.known[key] = b
	return b, nil
}

// keep samples the workers and writes blocks when it is time, at once where the server's
// clock was set back. after is the last entry that was folded.
func (f *statsFold) keep(ctx context.Context, after uint64) error {
	now := f.Now()
	if err := f.sample(ctx, now); err != nil {
		return err
	}
	save := now.Sub(f.saved).Abs() >= f.SaveInterval || len(f.known) > maxKnownBlocks
	if !save && now.Sub(f.written).Abs() < statsInterval {
		return nil
	}
	if err := f.write(ctx, save); err != nil {
		return err
	}
	f.written = now
	if !save {
		return nil
	}
	f.saved = now
	return f.save(ctx, after)
}

// sample adds a look at the workers to the points of the time, once in sampleInterval,
// however many recorders look.
func (f *statsFold) sample(ctx context.Context, now time.Time) error {
	at := now.Truncate(sampleInterval)
	if f.Sample == nil || at.Equal(f.looked) {
		return nil
	}
	f.looked = at
	all, err := f.Sample(ctx)
	if err != nil {
		return fmt.Errorf("look at the workers: %w", err)
	}
	for _, s := range all {
		for _, kind := range []streams.StatsKind{streams.StatsMinutes, streams.StatsHours} {
			key := keyAt(s.Endpoint, kind, "", at)
			b, err := f.read(ctx, key)
			if err != nil {
				return err
			}
			if b.Sampled < at.Unix() {
				b.point(key, at).Add(s, sampleInterval)
				b.Sampled, b.changed, b.sampled = at.Unix(), true, true
			}
		}
	}
	return nil
}

// write writes the blocks that have changed, those of hours only if all is set or they
// have a sample: entries can be folded again, a look at the workers cannot be repeated. It
// returns errChanged if another process wrote one.
func (f *statsFold) write(ctx context.Context, all bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentBlocks)
	for key, b := range f.known {
		if !b.changed || !all && !b.sampled && key.kind == streams.StatsHours {
			continue
		}
		g.Go(func() error { return f.put(ctx, key, b) })
	}
	return g.Wait()
}

// put writes a block over its revision. A block without a revision may be of an endpoint
// that was deleted with all its blocks: then it is not written.
func (f *statsFold) put(ctx context.Context, key blockKey, b *knownBlock) error {
	if b.revision == 0 {
		now, err := f.l.counts(ctx, key.endpoint)
		if err != nil {
			return err
		}
		if now.value.Since != b.since {
			return fmt.Errorf("write %s: %w: the endpoint was deleted", key.subject(), errChanged)
		}
	}
	data, err := json.Marshal(b.block)
	if err != nil {
		return fmt.Errorf("write %s: %w", key.subject(), err)
	}
	m := &nats.Msg{Subject: key.subject(), Data: data, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgTTLHeader, bus.MessageTTL(f.Now(), b.expires(key)))
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	revision, err := f.l.bus.Publish(within, streams.Stats, m, b.revision)
	switch {
	case errors.Is(err, bus.ErrConflict):
		return fmt.Errorf("write %s: %w", key.subject(), errChanged)
	case err != nil:
		return away(ctx, "write "+key.subject(), err)
	}
	b.revision, b.changed, b.sampled = revision, false, false
	return nil
}

// save writes the position once all blocks are on the disk, and the counts, which begin at
// the earlier of two positions too; and forgets the blocks that were not used since the last
// time.
func (f *statsFold) save(ctx context.Context, after uint64) error {
	for _, stream := range []string{streams.Stats, streams.Bucket(streams.BucketCounts)} {
		if err := waitDurable(ctx, f.Durable, stream); err != nil {
			return err
		}
	}
	if after != f.position {
		if err := f.l.setPosition(ctx, statsPosition, after); err != nil {
			return err
		}
		f.position = after
	}
	for key, b := range f.known {
		if !b.used {
			delete(f.known, key)
		}
		b.used = false
	}
	return nil
}

// DropStats forgets the points and failures of an endpoint that is being deleted. It
// returns bus.ErrUnavailable.
func (l *Log) DropStats(ctx context.Context, endpoint string) error {
	if err := l.bus.Purge(ctx, streams.Stats, streams.AllStats(endpoint)); err != nil {
		return away(ctx, "drop the statistics of "+endpoint, err)
	}
	return nil
}
