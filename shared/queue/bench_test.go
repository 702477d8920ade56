package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// The hot path, one job after the other, with a server in this process and a
// connection over loopback; e2e/bench measures real processes under load.

// benchInput has 256 bytes.
var benchInput = json.RawMessage(`{"text":"` + strings.Repeat("x", 245) + `"}`)

func newBench(b *testing.B) *env {
	b.Helper()
	bus := testenv.NewServer(b)
	if err := streams.Apply(b.Context(), bus.JS, streams.Config{}); err != nil {
		b.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		b.Fatal(err)
	}
	s := &env{Server: bus, e: e}
	if s.q, err = New(b.Context(), s.Connect(b), Config{}); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return s.q.Run(ctx) })
	b.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	if err := s.q.CreateEndpoint(b.Context(), e); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return s
}

func (s *env) benchSubmit(b *testing.B) {
	b.Helper()
	if _, err := s.q.Submit(b.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: benchInput, Caller: job.Caller{Key: "bench"}}); err != nil {
		b.Fatal(err)
	}
}

func (s *env) benchTaker(b *testing.B) *Consumer {
	b.Helper()
	consumer, err := s.q.Consume(b.Context(), s.e, "bench", 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(consumer.Close)
	return consumer
}

func benchNext(b *testing.B, consumer *Consumer) *Lease {
	b.Helper()
	l, err := consumer.Next(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func benchComplete(b *testing.B, l *Lease) {
	b.Helper()
	if _, err := l.Complete(b.Context(), l.Input); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkSubmit(b *testing.B) {
	s := newBench(b)
	for b.Loop() {
		s.benchSubmit(b)
	}
}

func BenchmarkPickUp(b *testing.B) {
	s := newBench(b)
	consumer := s.benchTaker(b)
	for b.Loop() {
		b.StopTimer()
		s.benchSubmit(b)
		b.StartTimer()
		l := benchNext(b, consumer)
		b.StopTimer()
		benchComplete(b, l)
		b.StartTimer()
	}
}

func BenchmarkComplete(b *testing.B) {
	s := newBench(b)
	consumer := s.benchTaker(b)
	for b.Loop() {
		b.StopTimer()
		s.benchSubmit(b)
		l := benchNext(b, consumer)
		b.StartTimer()
		benchComplete(b, l)
	}
}

// BenchmarkEmit measures chunks of n runs that emit at the same time, while nobody
// reads them.
func BenchmarkEmit(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			s := newBench(b)
			consumer, err := s.q.Consume(b.Context(), s.e, "w", n)
			if err != nil {
				b.Fatal(err)
			}
			defer consumer.Close()
			leases := make([]*Lease, n)
			for i := range leases {
				s.benchSubmit(b)
				if leases[i], err = consumer.Next(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			chunk := json.RawMessage(`{"output":"a token or two"}`)
			b.ResetTimer()
			var g errgroup.Group
			for _, l := range leases {
				g.Go(func() error {
					for range b.N {
						if err := l.Emit(b.Context(), chunk); err != nil {
							return err
						}
					}
					_, err := l.Complete(b.Context(), nil)
					return err
				})
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "chunks/s")
		})
	}
}

func BenchmarkCycle(b *testing.B) {
	s := newBench(b)
	consumer := s.benchTaker(b)
	for b.Loop() {
		s.benchSubmit(b)
		benchComplete(b, benchNext(b, consumer))
	}
}

// What /runsync does: the caller waits while a worker takes the job.
func BenchmarkRunsync(b *testing.B) {
	s := newBench(b)
	consumer := s.benchTaker(b)
	ctx, stop := context.WithCancel(b.Context())
	var g errgroup.Group
	g.Go(func() error {
		for {
			l, err := consumer.Next(ctx)
			if errors.Is(err, context.Canceled) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := l.Complete(ctx, l.Input); err != nil && ctx.Err() == nil {
				return err
			}
		}
	})
	for b.Loop() {
		s.benchRunSync(b)
	}
	stop()
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (s *env) benchRunSync(b *testing.B) {
	b.Helper()
	id := NewID(job.Sync)
	w, err := s.q.Watch(s.e, id)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	j, err := s.q.Submit(b.Context(), s.e, id, job.Sync, job.Request{Input: benchInput})
	if err != nil {
		b.Fatal(err)
	}
	w.Submitted(j)
	if j, err = w.Wait(b.Context()); err != nil || j.Status != job.Completed {
		b.Fatalf("got %+v, %v; want it completed", j, err)
	}
}
