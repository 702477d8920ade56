package events

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"flightline/shared/bus"
	"flightline/shared/stats"
	"flightline/streams"
)

// PointAt is a point with the instant at which its time begins.
type PointAt struct {
	At time.Time
	stats.Point
}

// Points returns the points of an endpoint that begin at or after from and before to,
// in their order, by the minute or by the hour: step is time.Minute or time.Hour. A
// time in which nothing happened has none. What happened in the last seconds may be
// missing. It returns bus.ErrUnavailable.
func (l *Log) Points(ctx context.Context, endpoint string, from, to time.Time, step time.Duration) ([]PointAt, error) {
	all, err := l.PointsOf(ctx, []string{endpoint}, from, to, step)
	return all[endpoint], err
}

// PointsOf is Points of several endpoints. It costs a few requests, however many jobs
// there were.
func (l *Log) PointsOf(ctx context.Context, endpoints []string, from, to time.Time, step time.Duration) (map[string][]PointAt, error) {
	kind := streams.StatsMinutes
	if step == time.Hour {
		kind = streams.StatsHours
	}
	blocks, err := l.blocksWithin(ctx, endpoints, kind, from, to)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]PointAt, len(endpoints))
	for key, b := range blocks {
		for i, p := range b.Points {
			at := time.Unix(key.start, 0).Add(time.Duration(i) * stepOf(kind)).UTC()
			if !at.Before(from) && at.Before(to) {
				all[key.endpoint] = append(all[key.endpoint], PointAt{at, *p})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b PointAt) int { return a.At.Compare(b.At) })
	}
	return all, nil
}

// Failures returns the failures of each of the endpoints in the hours that from and to are in
// and those between, by their causes, the most frequent first. It returns
// bus.ErrUnavailable.
func (l *Log) Failures(ctx context.Context, endpoints []string, from, to time.Time) (map[string]stats.Failures, error) {
	blocks, err := l.blocksWithin(ctx, endpoints, streams.StatsFailures, from, to)
	if err != nil {
		return nil, err
	}
	all := make(map[string]stats.Failures, len(endpoints))
	for _, key := range slices.SortedFunc(maps.Keys(blocks), func(a, b blockKey) int { return cmp.Compare(a.start, b.start) }) {
		merged := all[key.endpoint]
		merged.Merge(blocks[key].Failures)
		all[key.endpoint] = merged
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b stats.Group) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint))
		})
	}
	return all, nil
}

// blocksWithin reads the blocks without a name that have a time from from to to. Of many
// endpoints most have none: then it asks for those of any endpoint, block by block, and
// names each only where more have one than one request may answer.
func (l *Log) blocksWithin(ctx context.Context, endpoints []string, kind streams.StatsKind, from, to time.Time) (map[blockKey]*block, error) {
	if keys := keysWithin(endpoints, kind, from, to); len(keys) <= bus.MaxMatches {
		return l.blocks(ctx, keys)
	}
	wanted := make(map[string]bool, len(endpoints))
	for _, endpoint := range endpoints {
		wanted[endpoint] = true
	}
	all := make(map[blockKey]*block)
	for _, each := range keysWithin([]string{streams.AnyEndpoint}, kind, from, to) {
		found, err := l.blocks(ctx, []blockKey{each})
		if errors.Is(err, bus.ErrTooMany) {
			at := time.Unix(each.start, 0)
			found, err = l.blocks(ctx, keysWithin(endpoints, kind, at, at.Add(kind.Length())))
		}
		if err != nil {
			return nil, err
		}
		for key, b := range found {
			if wanted[key.endpoint] {
				all[key] = b
			}
		}
	}
	return all, nil
}

// keysWithin names the blocks without a name that have a time from from to to.
func keysWithin(endpoints []string, kind streams.StatsKind, from, to time.Time) []blockKey {
	var keys []blockKey
	for _, endpoint := range endpoints {
		for key := keyAt(endpoint, kind, "", from); time.Unix(key.start, 0).Before(to); key.start += int64(kind.Length() / time.Second) {
			keys = append(keys, key)
		}
	}
	return keys
}

// blocks reads blocks; those that are not there are left out. A key of
// streams.AnyEndpoint stands for the blocks of all endpoints.
func (l *Log) blocks(ctx context.Context, keys []blockKey) (map[blockKey]*block, error) {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = key.subject()
	}
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	got, err := l.bus.LastWithData(within, streams.Stats, subjects)
	if err != nil {
		return nil, away(ctx, "read "+streams.Stats, err)
	}
	found := make(map[blockKey]*block, len(got))
	for _, m := range got {
		subject := bus.SubjectOf(m)
		key, err := parseKey(subject)
		if err != nil {
			return nil, err
		}
		found[key] = l.decodedBlock(ctx, subject, bus.Sequence(m), m.Data)
	}
	return found, nil
}
