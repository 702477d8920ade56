package events

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/stats"
	"flightline/streams"
)

// Ends is a part of the ends of an endpoint's attempts that one worker had, or that
// failed for one cause, read from the newest. One of Worker and Fingerprint is set.
type Ends struct {
	// Worker is the id of the worker of the last run.
	Worker string
	// Fingerprint is that of the cause of a failure (stats.Fingerprint).
	Fingerprint string
	// Past is as for Log.Before; its Kinds are among those that end an attempt.
	Past
}

// has reports whether an event is one of these.
func (w Ends) has(e Event) bool {
	switch {
	case !e.Status.Terminal() || len(w.Kinds) > 0 && !slices.Contains(w.Kinds, e.Kind):
		return false
	case w.Worker != "":
		return e.Worker == w.Worker
	}
	return e.Kind == Failed && stats.Fingerprint(e.Cause) == w.Fingerprint
}

// block is the kind and the name of the blocks that lead to the ends.
func (w Ends) block() (streams.StatsKind, string) {
	if w.Worker != "" {
		return streams.StatsWorker, w.Worker
	}
	return streams.StatsFingerprint, w.Fingerprint
}

const (
	// maxIndexBlocks and maxIndexEntries bound what one call of EndsBefore reads, indexBatch
	// how many entries side by side.
	maxIndexBlocks, maxIndexEntries, indexBatch = 32, 128, 16
)

// EndsBefore reads ends backwards, as Before does. STATS says in which entries of the log
// they are, so the cost does not depend on how many jobs others had. The newest are
// missing for about five seconds, those whose results can no longer be read may be.
// It returns bus.ErrUnavailable.
func (l *Log) EndsBefore(ctx context.Context, endpoint string, w Ends) (page []Event, next uint64, err error) {
	w.Most = max(1, w.Most)
	keys, err := l.indexBlocks(ctx, endpoint, w)
	if err != nil {
		return nil, 0, err
	}
	last := uint64(1<<(64-placeBits) - 1) // the newest entry to look at
	if w.Before > 0 {
		last = (w.Before - 1) >> placeBits
	}
	looked := 0
	for i, key := range keys {
		if i == maxIndexBlocks || looked >= maxIndexEntries {
			return newest(page, next, w.Most)
		}
		blocks, err := l.blocks(ctx, []blockKey{key})
		if err != nil {
			return nil, 0, err
		}
		if blocks[key] == nil {
			continue
		}
		entries := blocks[key].Entries.list()
		slices.Reverse(entries)
		entries = slices.DeleteFunc(entries, func(seq uint64) bool { return seq > last })
		for some := range slices.Chunk(entries, min(w.Most, indexBatch)) {
			if len(page) >= w.Most || looked >= maxIndexEntries {
				return newest(page, next, w.Most)
			}
			found, err := l.endsIn(ctx, w, some)
			if err != nil {
				return nil, 0, err
			}
			looked += len(some)
			page, next = append(page, found...), some[len(some)-1]<<placeBits
		}
	}
	return newest(page, 0, w.Most)
}

// indexBlocks are the blocks that may have entries of the page, the newest first.
func (l *Log) indexBlocks(ctx context.Context, endpoint string, w Ends) ([]blockKey, error) {
	kind, name := w.block()
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	got, err := l.bus.LastOf(within, streams.Stats, []string{streams.StatsBlocks(endpoint, kind, name)})
	if err != nil {
		return nil, away(ctx, "read "+streams.Stats, err)
	}
	until := time.Time{}
	if w.Before > 0 {
		if until, err = l.writtenAt(ctx, (w.Before-1)>>placeBits); err != nil {
			return nil, err
		}
	}
	var keys []blockKey
	for _, m := range got {
		key, err := parseKey(bus.SubjectOf(m))
		if err != nil {
			return nil, err
		}
		begins := time.Unix(key.start, 0)
		if !begins.Add(kind.Length()).Before(w.Since) && (until.IsZero() || !begins.After(until)) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b blockKey) int { return int(b.start - a.start) })
	return keys, nil
}

// writtenAt is when an entry was written, or the one after it that there is; the zero
// time if none follows.
func (l *Log) writtenAt(ctx context.Context, seq uint64) (time.Time, error) {
	some, err := l.read(ctx, reading{filter: anySubject, from: max(1, seq), most: 1})
	if err != nil || len(some.entries) == 0 {
		return time.Time{}, err
	}
	return some.entries[0].Written, nil
}

// endsIn reads the ends that are wanted of entries. An entry that was removed has none.
func (l *Log) endsIn(ctx context.Context, w Ends, entries []uint64) (found []Event, err error) {
	lists := make([][]Event, len(entries))
	g, ctx := errgroup.WithContext(ctx)
	for i, seq := range entries {
		g.Go(func() error {
			some, err := l.read(ctx, reading{filter: anySubject, from: seq, most: 1})
			if err != nil || len(some.entries) == 0 || some.entries[0].Seq != seq {
				return err
			}
			for _, e := range some.entries[0].Events {
				if w.has(e) && (w.Before == 0 || e.Seq < w.Before) {
					lists[i] = append(lists[i], e)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(lists...), nil
}
