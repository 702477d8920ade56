package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// sample is what one round of one operation took.
type sample struct {
	N       int           `json:"n"`
	Elapsed time.Duration `json:"elapsed"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
}

// rate is operations per second.
func (s sample) rate() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.N) / s.Elapsed.Seconds()
}

// load does op n times from that many callers at once and returns what it
// took, or the first error.
func load(ctx context.Context, n, callers int, op func(ctx context.Context, i int) error) (sample, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range callers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				at := time.Now()
				if err := op(ctx, i); err != nil {
					return err
				}
				took[i] = time.Since(at)
			}
		})
	}
	if err := g.Wait(); err != nil {
		return sample{}, err
	}
	return sampleOf(took, time.Since(began)), nil
}

func sampleOf(took []time.Duration, elapsed time.Duration) sample {
	slices.Sort(took)
	return sample{N: len(took), Elapsed: elapsed, P50: quantile(took, 0.5), P99: quantile(took, 0.99)}
}

// quantile of sorted values: the smallest one that at least the share q does
// not exceed. 0 if there are none.
func quantile[T any](sorted []T, q float64) T {
	var none T
	if len(sorted) == 0 {
		return none
	}
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// median of some numbers, which it sorts. 0 if there are none.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// metric is one number of a reading.
type metric struct {
	name, unit string
	value      float64
}

// reading is what one round of a case found.
type reading []metric

func (r reading) value(name string) (float64, bool) {
	for _, m := range r {
		if m.name == name {
			return m.value, true
		}
	}
	return 0, false
}

func (r reading) with(name, unit string, value float64) reading {
	return append(r, metric{name, unit, value})
}

const milliseconds = "ms"

// latency is a sample's quantiles.
func latency(s sample) reading {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return reading{}.with("p50", milliseconds, ms(s.P50)).with("p99", milliseconds, ms(s.P99))
}
