package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// BenchmarkEvents measures chunks from the worker's Emit to a client of
// server-sent events, each stream with a job and a worker of its own; all sides
// share the machine.
func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			s := benchSystem(b)
			leases := make([]*queue.Lease, n)
			paths := make([]string, n)
			for i := range n {
				id := queue.NewID(job.Async)
				if _, err := s.queue.Submit(b.Context(), s.endpoint, id, job.Async, job.Request{Input: json.RawMessage(`{}`)}); err != nil {
					b.Fatal(err)
				}
				paths[i] = "/ep/stream/" + string(id)
			}
			taker, err := s.queue.Take(b.Context(), s.endpoint, "w", n)
			if err != nil {
				b.Fatal(err)
			}
			defer taker.Close()
			for i := range n {
				if leases[i], err = taker.Next(b.Context()); err != nil {
					b.Fatal(err)
				}
				paths[i] = "/ep/stream/" + string(leases[i].Job.ID)
			}
			b.ResetTimer()
			began := time.Now()
			var wg sync.WaitGroup
			chunk := json.RawMessage(`{"output":"a token or two"}`)
			for i := range n {
				wg.Go(func() {
					for range b.N {
						if err := leases[i].Emit(b.Context(), chunk); err != nil {
							b.Error(err)
							return
						}
					}
					if _, err := leases[i].Complete(b.Context(), nil); err != nil {
						b.Error(err)
					}
				})
				wg.Go(func() { s.countEvents(b, paths[i], b.N) })
			}
			wg.Wait()
			b.ReportMetric(float64(n*b.N)/time.Since(began).Seconds(), "chunks/s")
		})
	}
}

// countEvents reads a stream to its end.
func (s *system) countEvents(b *testing.B, path string, want int) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.base+path+"?format=sse", nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	got, last := 0, byte(0)
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		for _, c := range buf[:n] { // a chunk is a block that begins with id
			if last == '\n' && c == 'i' {
				got++
			}
			last = c
		}
		if err != nil {
			break
		}
	}
	if got != want {
		b.Errorf("got %d chunks, want %d", got, want)
	}
}

// benchSystem is start for benchmarks, with one queue.
func benchSystem(b *testing.B) *system {
	b.Helper()
	bus := bustest.New(b)
	if err := streams.Apply(b.Context(), bus.JS, streams.Config{}); err != nil {
		b.Fatal(err)
	}
	reg, err := registry.New(b.Context(), bus.JS, nil)
	if err != nil {
		b.Fatal(err)
	}
	q, err := queue.New(b.Context(), bus.NC, queue.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := reg.Keys.Put(b.Context(), adminKey, registry.KeySpec{Scopes: registry.AllScopes()}); err != nil {
		b.Fatal(err)
	}
	e, err := reg.Endpoints.Create(b.Context(), endpoint.Endpoint{ID: "ep", Created: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	if err := q.CreateEndpoint(b.Context(), e); err != nil {
		b.Fatal(err)
	}
	service, err := New(Config{}, Deps{Queue: q, Registry: reg})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	app := web.New(web.Config{})
	service.Routes(app)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{
		reg.Run, q.Run, func(ctx context.Context) error { return web.Serve(ctx, app, listener) },
	} {
		wg.Go(func() { _ = run(ctx) })
	}
	b.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); cancel(); wg.Wait() })
	return &system{bus: bus, queue: q, registry: reg, endpoint: e, base: "http://" + listener.Addr().String() + "/v2"}
}
