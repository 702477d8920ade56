package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
)

// told appends n events of each of the kinds, in turns, with those of another
// endpoint between them.
func told(t *testing.T, l *Log, n int, kinds ...Kind) {
	t.Helper()
	var list []Event
	for i := range n {
		for _, kind := range kinds {
			e := Event{Kind: kind, Endpoint: "ep", Job: job.ID(fmt.Sprintf("%s-%d", kind, i)), Attempt: 1, At: time.UnixMilli(int64(1000 + i))}
			other := e
			other.Endpoint = "other"
			list = append(list, e, other)
		}
	}
	for len(list) > 0 { // in some entries
		some := min(7, len(list))
		if err := l.Append(t.Context(), list[:some]...); err != nil {
			t.Fatal(err)
		}
		list = list[some:]
	}
}

func TestBeforeReadsAllOfTheKindsBackwards(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	told(t, l, 60, Queued, Started, Completed, Failed)
	told(t, l, 3, Cancelled)
	var all []Event
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.Follow(ctx, 0, func(e Event) error {
		all = append(all, e)
		if len(all) == 2*(60*4+3) {
			cancel()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	for _, kinds := range [][]Kind{nil, {Failed}, {Cancelled}, {TimedOut}, {Failed, Completed, Cancelled}, {Cancelled, TimedOut}} {
		var want []uint64
		for _, e := range all {
			if e.Endpoint == "ep" && (kinds == nil || slices.Contains(kinds, e.Kind)) {
				want = append(want, e.Seq)
			}
		}
		for _, most := range []int{1, 7, 100} {
			if got := backwards(t, l, Past{Kinds: kinds, Most: most}); !slices.Equal(got, want) {
				t.Errorf("%v in pages of %d: got %d events %v, want %d %v", kinds, most, len(got), got, len(want), want)
			}
		}
	}
}

// backwards reads all pages and returns the events' sequences.
func backwards(t *testing.T, l *Log, p Past) (seqs []uint64) {
	t.Helper()
	for {
		page, next, err := l.Before(t.Context(), "ep", p)
		if err != nil || len(page) > p.Most {
			t.Fatalf("got %d events, %v", len(page), err)
		}
		for _, e := range page {
			seqs = append(seqs, e.Seq)
		}
		if next == 0 {
			return seqs
		}
		p.Before = next
	}
}

func TestBeforeEndsAtAnInstant(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	told(t, l, 5, Failed)
	last, _, err := l.Last(t.Context(), "ep", "failed-4", time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := backwards(t, l, Past{Kinds: []Kind{Failed}, Since: last.Written, Most: 3}); !slices.Contains(got, last.Seq) {
		t.Errorf("got %v, want the last event, %d", got, last.Seq)
	}
	if got := backwards(t, l, Past{Kinds: []Kind{Failed}, Since: last.Written.Add(time.Minute), Most: 3}); len(got) > 0 {
		t.Errorf("got %v, want nothing from the future", got)
	}
}

func TestBeforeOfAnEmptyLogAndInAnOutage(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	if page, next, err := l.Before(t.Context(), "ep", Past{Most: 5}); len(page) > 0 || next != 0 || err != nil {
		t.Errorf("got %v, %d, %v, want nothing", page, next, err)
	}
	b.Stop()
	if _, _, err := l.Before(t.Context(), "ep", Past{Most: 5}); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
}
