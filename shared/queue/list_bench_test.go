package queue

import (
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
)

// BenchmarkList reads a page of ten jobs of a queue of a few and of many, and how long the
// first one has waited.
func BenchmarkList(b *testing.B) {
	s := newBench(b)
	there := 0
	for _, n := range []int{100, 100_000} {
		var g errgroup.Group
		g.SetLimit(256)
		for ; there < n; there++ {
			g.Go(func() error {
				_, err := s.q.Submit(b.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		for name, w := range map[string]ListOptions{"newest": {Most: 10}, "middle": {Most: 10, Before: uint64(n / 2)}} {
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if page, _, err := s.q.Lists.Live(b.Context(), s.e, w); err != nil || len(page) != 10 {
						b.Fatalf("got %d jobs, %v", len(page), err)
					}
				}
			})
		}
		for class, waits := range map[job.Class]bool{job.Normal: true, job.LowPriority: false} {
			b.Run(fmt.Sprintf("oldest %s of %d", class, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if wait, err := s.q.Counts.OldestWait(b.Context(), s.e, class); err != nil || wait > 0 != waits {
						b.Fatalf("got %v, %v", wait, err)
					}
				}
			})
		}
	}
}
