package webhook

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/deliveries"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// redeliverAfter makes what a dead instance held come back soon.
func (s *env) redeliverAfter(d time.Duration) {
	s.t.Helper()
	c, err := s.js.Consumer(s.t.Context(), streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.AckWait = d
	if _, err := s.js.UpdateConsumer(s.t.Context(), streams.Webhooks, cfg); err != nil {
		s.t.Fatal(err)
	}
}

// serveUntil runs an instance that dies at the nth crash point it passes: its
// connection is gone, and whatever it does goes no further than the next point.
func (s *env) serveUntil(cfg Config, nth int64) (dead <-chan struct{}) {
	s.t.Helper()
	nc := s.connect(s.t)
	q, err := queue.New(s.t.Context(), nc, queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	var passed atomic.Int64
	killed := make(chan struct{})
	cfg.Point = func(Point) {
		switch n := passed.Add(1); {
		case n == nth:
			nc.Close()
			close(killed)
			runtime.Goexit()
		case n > nth:
			runtime.Goexit()
		}
	}
	service, err := New(cfg, Deps{Queue: q, Registry: s.registry})
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Background(s.t, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // ends with ctx
			select {
			case <-killed:
				cancel()
			case <-ctx.Done():
			}
		}()
		return service.Run(ctx)
	})
	return killed
}

func TestKilledTenTimesEachIsDeliveredAtLeastOnce(t *testing.T) {
	t.Parallel()
	const jobs, kills = 150, 10
	s := newEnv(t, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second)
	s.redeliverAfter(time.Second)
	var mu sync.Mutex
	accepted := map[string]int{} // by webhook-id
	r := receive(t, func(w http.ResponseWriter, req *http.Request) {
		if rand.IntN(5) == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		accepted[req.Header.Get(standardwebhooks.HeaderWebhookID)]++
	})
	ids := make([]job.ID, jobs)
	for i := range ids {
		ids[i] = s.complete(r.url)
	}
	for range kills {
		<-s.serveUntil(lenient(), 5+rand.Int64N(30))
	}
	s.serve(lenient())
	testenv.Eventually(s.t, "all are done", func() bool { return s.left(streams.Webhooks) == 0 })
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		log := s.log(id)
		if n := accepted["msg_"+string(id)+"_1"]; n == 0 || log[len(log)-1].Outcome != deliveries.Delivered {
			t.Errorf("job %s: accepted %d times, log %+v, want at least once", id, n, log)
		}
	}
	if len(accepted) != jobs {
		t.Errorf("got %d webhook-ids, want %d: duplicates carry the same", len(accepted), jobs)
	}
	t.Logf("%d calls for %d jobs, %d kills", len(r.calls()), jobs, kills)
}

// Down for longer than the results are kept: each webhook is whole all the same.
func TestDownForLongerThanTheRetention(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	r := receive(t, answerWith(200))
	big := make([]byte, 400<<10)
	for i := range big {
		big[i] = 'x'
	}
	payload := []byte(`{"big":"` + string(big) + `"}`)
	var ids []job.ID
	for range 5 {
		id := queue.NewID(job.Sync)
		s.submit(id, r.url, payload)
		s.announce(s.work(payload, ""))
		ids = append(ids, id)
	}
	records, err := s.js.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := records.Purge(t.Context()); err != nil { // as the recorder does at the end of the retention
		t.Fatal(err)
	}
	s.bus.Stop()
	s.bus.Start()
	testenv.Eventually(s.t, "the bus is back", func() bool {
		_, err := s.queue.Changes.Last(t.Context(), 0)
		return err == nil && s.bus.NC.IsConnected()
	})
	s.serve(lenient())
	for _, id := range ids {
		s.over(id)
	}
	for _, c := range r.calls() {
		if err := verify(c, s.endpoint.WebhookSecret); err != nil || len(c.body) < 2*len(payload) || !slices.Contains(ids, c.job()) {
			t.Errorf("got %d bytes, %v, want the whole input and output", len(c.body), err)
		}
	}
	if len(r.calls()) != len(ids) {
		t.Errorf("got %d calls, want %d", len(r.calls()), len(ids))
	}
}

// 50 receivers hang; a healthy one must not notice.
func TestHangingHostsHoldUpNobody(t *testing.T) {
	t.Parallel()
	const hosts, each, healthy = 50, 4, 1000
	s := newEnv(t, time.Second)
	cfg := lenient()
	cfg.Timeout = 5 * time.Second
	s.serve(cfg)
	released := make(chan struct{})
	for range hosts {
		r := receive(t, func(_ http.ResponseWriter, r *http.Request) { hang(r, released) })
		for range each {
			s.complete(r.url)
		}
	}
	t.Cleanup(func() { close(released) })
	var mu sync.Mutex
	came := map[job.ID]time.Time{}
	r := receive(t, answerWith(200))
	ended := map[job.ID]time.Time{}
	for range healthy {
		id := s.complete(r.url)
		ended[id] = time.Now()
	}
	testenv.Eventually(s.t, "all of the healthy one", func() bool { return len(r.calls()) >= healthy })
	mu.Lock()
	defer mu.Unlock()
	for _, c := range r.calls() {
		came[c.job()] = c.at
	}
	var late []time.Duration
	for id, at := range ended {
		if came[id].IsZero() {
			t.Fatalf("job %s never came", id)
		}
		late = append(late, came[id].Sub(at))
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	t.Logf("p50 %s, p99 %s, most %s", late[len(late)/2], p99, late[len(late)-1])
	if p99 > time.Second {
		t.Errorf("got a p99 of %s, want less than 1s", p99)
	}
}

// A log of deliveries that takes no writes, as after a failed write of its store, has no webhook
// posted again and again until NATS is restarted.
func TestWhatCannotBeLoggedIsPostedOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	mend := s.bus.BreakStore(streams.Deliveries)
	for filler := make([]byte, 900<<10); ; {
		if _, err := s.bus.NC.Request(streams.DeliverySubject("ep", "filler", 1), filler, 2*time.Second); errors.Is(err, nats.ErrTimeout) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	mend()
	good, bad := receive(t, answerWith(200)), receive(t, answerWith(500))
	s.complete(good.url)
	s.complete(bad.url)
	var log testenv.Log
	cfg := lenient()
	cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.serve(cfg)
	testenv.Eventually(t, "the log refused both twice, or one was posted again", func() bool {
		return strings.Count(log.String(), "webhook posted but not logged") >= 4 || len(good.calls())+len(bad.calls()) > 2
	})
	if n, m := len(good.calls()), len(bad.calls()); n != 1 || m != 1 {
		t.Errorf("got %d and %d calls while the log takes no writes, want one each", n, m)
	}
	s.bus.Stop()
	s.bus.Start()
	testenv.Eventually(t, "both are done", func() bool { return s.left(streams.Webhooks) == 0 })
	if n, m := len(good.calls()), len(bad.calls()); n != 1 || m != 2 {
		t.Errorf("got %d and %d calls, want 1 delivered, and 2 as scheduled", n, m)
	}
}
