package registry

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"flightline/shared/testenv"
	"flightline/streams"
)

// newWritten returns a table of n keys, "0" and on, that are written again and again.
func newWritten(t *testing.T, n int) *Table[string] {
	t.Helper()
	t.Parallel()
	b, _ := newRegistry(t)
	table, err := OpenTable[string](t.Context(), b.JS, streams.BucketPositions)
	if err != nil {
		t.Fatal(err)
	}
	testenv.KeepWriting(t, n, func(ctx context.Context, i int) error { return table.Put(ctx, fmt.Sprint(i), "v") })
	return table
}

// ADR 0077: by a watch of nats.go, one of twenty such lists lacked a key.
func TestAListMissesNoKeyThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 100, 1500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			table := newWritten(t, n)
			for range max(100, 4000/n) {
				var all []string
				testenv.Retry(t, func() (err error) {
					all, err = table.List(t.Context())
					return err
				})
				if len(all) != n {
					t.Fatalf("got %d of %d keys", len(all), n)
				}
			}
		})
	}
}

func TestACacheBeginsWithAllKeysThoughTheyAreWrittenMeanwhile(t *testing.T) {
	const n = 20
	table := newWritten(t, n)
	for range 100 {
		c := newCache(table, slog.New(slog.DiscardHandler))
		_, begun := c.seen()
		stop := testenv.Background(t, c.run)
		<-begun
		if all, _ := c.all(func(entry[string]) bool { return true }); len(all) != n {
			t.Fatalf("got %d of %d keys", len(all), n)
		}
		stop()
	}
}

// A write of this process that comes between the list that a cache begins with and the
// moment at which the cache takes it over stays visible to the process.
func TestACacheThatBeginsKeepsOwnWrites(t *testing.T) {
	table := newWritten(t, 20)
	c := newCache(table, slog.New(slog.DiscardHandler))
	stop := testenv.Background(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if _, err := c.begin(ctx); err != nil && ctx.Err() == nil && !testenv.IsLate(err) {
				return err
			}
		}
		return nil
	})
	defer stop()
	for range 500 {
		var own entry[string]
		testenv.Retry(t, func() (err error) {
			own, err = table.change(t.Context(), "own", func(string, bool) (string, error) { return "own", nil })
			return err
		})
		c.put(own)
		for range 1000 {
			if got, _, _ := c.get("own"); got.revision < own.revision {
				t.Fatalf("got revision %d of a key, want %d", got.revision, own.revision)
			}
		}
	}
}
