package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
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
