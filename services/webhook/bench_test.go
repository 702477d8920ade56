package webhook

import (
	"bytes"
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/streams"
)

// Deliveries a second, beside a bare loop that posts the same bodies with as
// many requests at once.
func BenchmarkDeliver(b *testing.B) {
	body := []byte(`{"delayTime":0,"executionTime":0,"id":"01a1fd49-68b2-7072-b537-c774d70c4b53","input":{"n":"<1>"},"retries":0,"status":"CANCELLED"}`)
	debug.SetGCPercent(400) // as in the binary
	b.Run("bare loop", func(b *testing.B) {
		r := receive(b, answerWith(200))
		cfg := lenient()
		cfg.MaxPerHost, cfg.MaxConcurrency, cfg.Timeout = defaultMaxPerHost, defaultMaxConcurrency, defaultTimeout
		s := &Service{cfg: cfg, client: newClient(cfg)}
		defer s.client.CloseIdleConnections()
		work := make(chan int)
		var wg sync.WaitGroup
		for range cfg.MaxPerHost {
			wg.Go(func() {
				for range work {
					if got, err := s.post(context.Background(), targetOf(r.url), http.Header{}, bytes.Clone(body)); err != nil || !got.ok() {
						b.Error(got, err)
					}
				}
			})
		}
		for i := range b.N {
			work <- i
		}
		close(work)
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
	})
	b.Run("service", func(b *testing.B) {
		s := newEnv(b)
		r := receive(b, answerWith(200))
		for range b.N {
			s.complete(r.url)
		}
		b.ResetTimer()
		s.serve(lenient())
		testenv.Eventually(s.t, "all are delivered", func() bool { return s.left(streams.Webhooks) == 0 })
		b.StopTimer()
		// Without the time to connect, which the bare loop has not.
		b.ReportMetric(float64(b.N)/time.Since(r.calls()[0].at).Seconds(), "deliveries/s")
	})
}
