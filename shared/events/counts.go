package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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
	// Seq is that of the last event that changed the totals.
	Seq uint64 `json:"seq"`
	// Since is when an endpoint of this id was last deleted, in milliseconds:
	// what happens to its jobs afterwards is not the next one's.
	Since int64 `json:"since,omitempty"`
}

// with counts e, unless it is counted already.
func (c counts) with(e Event) counts {
	if e.Seq <= c.Seq || e.Submitted.UnixMilli() <= c.Since {
		return c
	}
	before := c.Totals
	switch e.Kind {
	case Completed:
		c.Completed++
	case Failed:
		c.Failed++
	case Cancelled:
		c.Cancelled++
	case TimedOut:
		c.TimedOut++
	case Started:
		if e.Run > 1 {
			c.Retried++
		}
	case Queued:
		if e.Attempt > 1 {
			c.Retried++
		}
	}
	if c.Totals != before {
		c.Seq = e.Seq
	}
	return c
}

// Totals returns what is counted for an endpoint, zero if nothing is. While a
// recorder runs it is at most about a second behind. It returns ErrUnavailable.
func (l *Log) Totals(ctx context.Context, endpoint string) (Totals, error) {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	kept, err := l.counts(within, endpoint)
	return kept.value.Totals, err
}

// DropCounts forgets what was counted for an endpoint that is being deleted.
// now is the server's time, when it has no more jobs; an endpoint that is made
// again with the same id starts from zero. It returns ErrUnavailable.
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

// kept is a value with its revision, 0 if there is none yet.
type kept struct {
	value    counts
	revision uint64
}

// errChanged means that somebody else wrote the counts first.
var errChanged = errors.New("events: the counts have changed")

func (l *Log) counts(ctx context.Context, endpoint string) (kept, error) {
	kv, err := l.bucket(ctx, streams.BucketCounts)
	if err != nil {
		return kept{}, err
	}
	entry, err := kv.Get(ctx, endpoint)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return kept{}, nil
	case err != nil:
		return kept{}, away(ctx, "read counts of "+endpoint, err)
	}
	k := kept{revision: entry.Revision()}
	if err := json.Unmarshal(entry.Value(), &k.value); err != nil {
		return kept{}, fmt.Errorf("read counts of %s: %w", endpoint, err)
	}
	return k, nil
}

// putCounts writes k's value over its revision and returns the new one;
// errChanged if that is not the last.
func (l *Log) putCounts(ctx context.Context, endpoint string, k kept) (uint64, error) {
	kv, err := l.bucket(ctx, streams.BucketCounts)
	if err != nil {
		return 0, err
	}
	data, err := json.Marshal(k.value)
	if err != nil {
		return 0, fmt.Errorf("write counts of %s: %w", endpoint, err)
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	revision, err := kv.Update(within, endpoint, data, k.revision)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return 0, errChanged
	case err != nil:
		return 0, away(ctx, "write counts of "+endpoint, err)
	}
	return revision, nil
}
