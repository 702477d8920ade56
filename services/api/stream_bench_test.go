package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
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
			consumer, err := s.queue.Consume(b.Context(), s.endpoint, "w", n)
			if err != nil {
				b.Fatal(err)
			}
			defer consumer.Close()
			for i := range n {
				if leases[i], err = consumer.Next(b.Context()); err != nil {
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

// BenchmarkFirstChunk measures the time from the beginning of a submission until a
// client of server-sent events has the first of four chunks, n jobs at a time.
func BenchmarkFirstChunk(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			s := benchSystem(b)
			consumer, err := s.queue.Consume(b.Context(), s.endpoint, "w", n)
			if err != nil {
				b.Fatal(err)
			}
			defer consumer.Close()
			var workers, clients sync.WaitGroup
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}} // each keeps its connection
			defer client.CloseIdleConnections()
			for range n {
				workers.Go(func() { emitFour(b, consumer) })
			}
			took := make([]time.Duration, n*b.N)
			b.ResetTimer()
			for i := range n {
				clients.Go(func() {
					for k := range b.N {
						took[i*b.N+k] = s.firstEvent(b, client)
					}
				})
			}
			clients.Wait()
			b.StopTimer()
			consumer.Close()
			workers.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// emitFour runs jobs until the consumer is closed.
func emitFour(b *testing.B, consumer *queue.Consumer) {
	b.Helper()
	for {
		l, err := consumer.Next(b.Context())
		if err != nil {
			return
		}
		for range 4 {
			if err := l.Emit(b.Context(), json.RawMessage(`{"output":"a token or two"}`)); err != nil {
				b.Error(err)
			}
		}
		if _, err := l.Complete(b.Context(), nil); err != nil {
			b.Error(err)
		}
	}
}

// firstEvent submits a job and reads its stream.
func (s *env) firstEvent(b *testing.B, client *http.Client) (first time.Duration) {
	b.Helper()
	began := time.Now()
	id := queue.NewID(job.Async)
	if _, err := s.queue.Submit(b.Context(), s.endpoint, id, job.Async, job.Request{Input: json.RawMessage(`{}`)}); err != nil {
		b.Error(err)
		return 0
	}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.base+"/ep/stream/"+string(id)+"?format=sse", nil)
	if err != nil {
		b.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := client.Do(req)
	if err != nil {
		b.Error(err)
		return 0
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if first == 0 && bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
			first = time.Since(began)
		}
	}
	return first
}

// countEvents reads a stream to its end.
func (s *env) countEvents(b *testing.B, path string, want int) {
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
func benchSystem(b *testing.B) *env {
	b.Helper()
	at := backend.New(b)
	service, err := New(Config{}, Deps{Queue: at.Queue, Registry: at.Registry, Events: at.Events(b)})
	if err != nil {
		b.Fatal(err)
	}
	app := web.New(web.Config{})
	service.Routes(app)
	return &env{bus: at.Bus, queue: at.Queue, registry: at.Registry, endpoint: at.Endpoint, base: backend.Serve(b, app) + "/v2"}
}
