package registry

import (
	"context"
	"sync"
	"testing"

	"flightline/shared/testenv"
)

// Held polls look at their tokens five times a second each.
func TestLooksAtATokenShareAReadWhileMemoryIsNotCurrent(t *testing.T) {
	t.Parallel()
	b, r := newRegistry(t)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = r.Run(ctx) })
	if _, _, err := r.Tokens.Issue(t.Context(), "ep", "w"); err != nil {
		t.Fatal(err)
	}
	current := func() bool {
		_, found, vouched := r.Tokens.cache.get("ep.w")
		return found && vouched
	}
	testenv.Eventually(t, "memory has the token", current)
	stop()
	run.Wait()
	testenv.Eventually(t, "memory is not current", func() bool { return !current() })
	before := b.NC.Stats().OutMsgs
	var looks sync.WaitGroup
	const many = 200
	for range many {
		looks.Go(func() {
			if _, err := r.Tokens.Find(t.Context(), "ep", "w"); err != nil {
				t.Error(err)
			}
		})
	}
	looks.Wait()
	if n := b.NC.Stats().OutMsgs - before; n > many/10 {
		t.Errorf("got %d reads for %d looks at the same time, want a few", n, many)
	}
}
