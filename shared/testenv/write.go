package testenv

import (
	"context"
	"testing"
)

// KeepWriting calls put for 0 to n-1, and then again and again, in an order of its own, until
// the test ends. A write that is late (IsLate) is repeated at first, and left out later; any
// other error fails the test.
func KeepWriting(t testing.TB, n int, put func(ctx context.Context, i int) error) {
	t.Helper()
	for i := range n {
		Retry(t, func() error { return put(t.Context(), i) })
	}
	Background(t, func(ctx context.Context) error {
		for i := 0; ctx.Err() == nil; i += 7 {
			if err := put(ctx, i%n); err != nil && ctx.Err() == nil && !IsLate(err) {
				return err
			}
		}
		return nil
	})
}
