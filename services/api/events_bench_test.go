package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"flightline/shared/events"
	"flightline/shared/web"
)

// From the append of an event to its last subscriber, all sides included.
func BenchmarkSubscribers(b *testing.B) {
	for _, subscribers := range []int{1, 32} {
		b.Run(fmt.Sprintf("%d", subscribers), func(b *testing.B) {
			s, log := benchTelling(b)
			var ready, done sync.WaitGroup
			ready.Add(subscribers)
			for range subscribers {
				done.Go(func() { s.countTold(b, b.N, ready.Done) })
			}
			ready.Wait()
			began := time.Now()
			for n := 0; n < b.N; n += 300 {
				var list []events.Event
				for i := n; i < min(b.N, n+300); i++ {
					list = append(list, lifeOf(fmt.Sprint(i))[0])
				}
				if err := log.Append(b.Context(), list...); err != nil {
					b.Fatal(err)
				}
			}
			done.Wait()
			took := time.Since(began).Seconds()
			b.ReportMetric(float64(b.N)/took, "events/s")
			b.ReportMetric(float64(subscribers*b.N)/took, "told/s")
		})
	}
}

// benchTelling is an instance with a log of events.
func benchTelling(b *testing.B) (*env, *events.Log) {
	b.Helper()
	s := benchSystem(b)
	log, err := events.New(s.bus.NC, s.bus.JS, nil)
	if err != nil {
		b.Fatal(err)
	}
	service, err := New(Config{}, Deps{Queue: s.queue, Registry: s.registry, Events: log})
	if err != nil {
		b.Fatal(err)
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	app := web.New(web.Config{})
	service.Routes(app)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = service.tail.Run(ctx) })
	wg.Go(func() { _ = web.Serve(ctx, app, listener) })
	b.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); cancel(); wg.Wait() })
	s.base = "http://" + listener.Addr().String() + "/v2"
	return s, log
}

// countTold reads n events, each a line that begins with event.
func (s *env) countTold(b *testing.B, n int, begun func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/ep/events", nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	begun()
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for got := 0; got < n && lines.Scan(); {
		if bytes.HasPrefix(lines.Bytes(), []byte("event: ")) {
			got++
		}
	}
	if lines.Err() != nil {
		b.Error(lines.Err())
	}
}
