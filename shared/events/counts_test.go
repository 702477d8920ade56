package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestWhatCounts(t *testing.T) {
	t.Parallel()
	old := counts{Totals: Totals{Completed: 3, Retried: 2}, Seq: 10, Since: 500}
	tests := map[string]struct {
		e    Event
		want Totals
		seq  uint64
	}{
		"completed":                    {Event{Kind: Completed, Run: 1, Attempt: 1}, Totals{Completed: 4, Retried: 2}, 11},
		"failed":                       {Event{Kind: Failed, Run: 1, Attempt: 1}, Totals{Completed: 3, Failed: 1, Retried: 2}, 11},
		"timed out":                    {Event{Kind: TimedOut, Run: 1, Attempt: 1}, Totals{Completed: 3, TimedOut: 1, Retried: 2}, 11},
		"cancelled":                    {Event{Kind: Cancelled, Attempt: 1}, Totals{Completed: 3, Cancelled: 1, Retried: 2}, 11},
		"first pick-up":                {Event{Kind: Started, Run: 1, Attempt: 1}, old.Totals, 10},
		"second pick-up":               {Event{Kind: Started, Run: 2, Attempt: 1}, Totals{Completed: 3, Retried: 3}, 11},
		"first attempt":                {Event{Kind: Queued, Attempt: 1}, old.Totals, 10},
		"a retry":                      {Event{Kind: Queued, Attempt: 2}, Totals{Completed: 3, Retried: 3}, 11},
		"first pick-up of a retry":     {Event{Kind: Started, Run: 1, Attempt: 2}, old.Totals, 10},
		"a kind of a later version":    {Event{Kind: "moved", Attempt: 1}, old.Totals, 10},
		"counted already":              {Event{Kind: Completed, Seq: 10, Attempt: 1}, old.Totals, 10},
		"of an endpoint that was gone": {Event{Kind: Completed, Submitted: at(500), Attempt: 1}, old.Totals, 10},
	}
	for name, tt := range tests {
		entry := Entry{Seq: cmp.Or(tt.e.Seq, 11)}
		if tt.e.Submitted.IsZero() {
			tt.e.Submitted = at(501)
		}
		entry.Events = []Event{tt.e}
		got := old.with(entry)
		if got.Totals != tt.want || got.Seq != tt.seq || got.Since != old.Since {
			t.Errorf("%s: got %+v, want %+v at %d", name, got, tt.want, tt.seq)
		}
		if again := got.with(entry); again != got {
			t.Errorf("%s: counted twice: got %+v, want %+v", name, again, got)
		}
	}
}

// wantTotals waits for the totals and checks that they stay.
func wantTotals(t *testing.T, l *Log, endpoint string, want Totals) {
	t.Helper()
	var got Totals
	defer func() {
		if t.Failed() {
			t.Logf("%s: got %+v, want %+v", endpoint, got, want)
		}
	}()
	testenv.Eventually(t, "the totals", func() bool {
		var err error
		got, err = l.Totals(t.Context(), endpoint)
		return err == nil && got == want
	})
}

func TestSeveralFoldersCountEachEventOnce(t *testing.T) {
	t.Parallel()
	const jobs, endpoints = 400, 5
	b := newBus(t)
	for range 3 {
		l := open(t, b)
		running(t, func(ctx context.Context) error { return l.Count(ctx, Counting{}) })
	}
	l := open(t, b)
	for i := range jobs {
		if err := l.Append(t.Context(), life(fmt.Sprintf("ep%d", i%endpoints), fmt.Sprintf("j%d", i))...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range endpoints {
		wantTotals(t, l, fmt.Sprintf("ep%d", i), Totals{Failed: jobs / endpoints, Retried: jobs / endpoints})
	}
	wantTotals(t, l, "another", Totals{})
}

// A folder that stops anywhere, also between the counts of two endpoints and
// its position, leaves what the next one can go on from.
func TestAFolderThatStopsAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	const jobs, endpoints = 200, 7
	b := newBus(t)
	l := open(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	filled := make(chan error, 1)
	go func() {
		for i := range jobs {
			if err := l.Append(ctx, life(fmt.Sprintf("ep%d", i%endpoints), fmt.Sprintf("j%d", i))...); err != nil {
				filled <- err
				return
			}
		}
		filled <- nil
	}()
	broken := errors.New("broken")
	for i := range 40 {
		nc := b.Connect(t)
		dying, err := New(nc, b.JS, nil)
		if err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
		f := newFold(dying, Counting{Durable: func(context.Context, string) error {
			if i%5 == 0 {
				return broken
			}
			return nil
		}})
		for short.Err() == nil {
			_, _ = f.step(short) // ends in the middle
		}
		stop()
		nc.Close()
	}
	if err := <-filled; err != nil {
		t.Fatal(err)
	}
	running(t, func(ctx context.Context) error { return open(t, b).Count(ctx, Counting{}) }) //nolint:contextcheck // open has the test's own
	for i := range endpoints {
		n := int64((jobs + endpoints - 1 - i) / endpoints)
		wantTotals(t, l, fmt.Sprintf("ep%d", i), Totals{Failed: n, Retried: n})
	}
}

func TestOnlyEventsOnTheDiskCount(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	if err := l.Append(t.Context(), life("ep", "a")...); err != nil {
		t.Fatal(err)
	}
	asked := ""
	f := newFold(l, Counting{Durable: func(_ context.Context, stream string) error {
		asked = stream
		return errors.New("not on the disk")
	}})
	if _, err := f.step(t.Context()); err == nil || asked != streams.Events {
		t.Errorf("got %v, having asked for %q", err, asked)
	}
	if got, err := l.Totals(t.Context(), "ep"); err != nil || got != (Totals{}) {
		t.Errorf("got %+v, %v; want nothing", got, err)
	}
	f.Durable = func(context.Context, string) error { // a power loss while waiting
		b.Stop()
		b.Start() //nolint:contextcheck // the test's own
		testenv.Eventually(t, "the connection is back", func() bool { return l.Server() != "" })
		return nil
	}
	if _, err := f.step(t.Context()); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
}

// Else a power loss that took the counts and left the position would leave out events.
func TestThePositionOfTheStatisticsWaitsForTheCounts(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	if err := l.Append(t.Context(), life("ep", "a")...); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("not on the disk")
	f := newFold(l, Counting{Durable: func(_ context.Context, stream string) error {
		if stream == streams.Bucket(streams.BucketCounts) {
			return broken
		}
		return nil
	}})
	if _, err := f.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.stats.save(t.Context(), f.after); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if got, err := l.Position(t.Context(), statsPosition); got != 0 || err != nil {
		t.Errorf("got position %d, %v, want 0", got, err)
	}
}

func TestAnEndpointMadeAgainStartsFromZero(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	running(t, func(ctx context.Context) error { return l.Count(ctx, Counting{}) })
	if err := l.Append(t.Context(), life("ep", "a")...); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, l, "ep", Totals{Failed: 1, Retried: 1})
	if err := l.DropCounts(t.Context(), "ep", at(5000)); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, l, "ep", Totals{})
	late, fresh := life("ep", "b"), life("ep", "c")
	for i := range fresh {
		fresh[i].Submitted = at(6000)
	}
	if err := l.Append(t.Context(), append(late, fresh...)...); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, l, "ep", Totals{Failed: 1, Retried: 1})
	if after, err := l.Position(t.Context(), countsPosition); err != nil || after > 2 {
		t.Errorf("got position %d, %v", after, err)
	}
	testenv.Eventually(t, "all is counted", func() bool {
		after, err := l.Position(t.Context(), countsPosition)
		return err == nil && after == 2
	})
	wantTotals(t, l, "ep", Totals{Failed: 1, Retried: 1})
}

func TestPositions(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	for _, want := range []uint64{0, 7, 3} {
		if want > 0 {
			if err := l.setPosition(t.Context(), "x", want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := l.Position(t.Context(), "x"); err != nil || got != want {
			t.Errorf("got %d, %v; want %d", got, err, want)
		}
	}
}
