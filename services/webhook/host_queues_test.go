package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/deliveries"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// completeMany is complete for n jobs, n copies of one task.
func (s *env) completeMany(n int, webhook string) {
	s.t.Helper()
	first := s.complete(webhook)
	stream, err := s.js.Stream(s.t.Context(), streams.Webhooks)
	if err != nil {
		s.t.Fatal(err)
	}
	var m *jetstream.RawStreamMsg
	testenv.Eventually(s.t, "the first is read", func() bool { // by any replica, which may lag
		m, err = stream.GetLastMsgForSubject(s.t.Context(), streams.WebhookSubject("ep", first, 1))
		return err == nil
	})
	header := nats.Header{}
	for key, values := range m.Header {
		if key != jetstream.MsgIDHeader && key != jetstream.ExpectedLastSubjSeqHeader {
			header[key] = values
		}
	}
	js, err := jetstream.New(s.connect(s.t), jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		s.t.Fatal(err)
	}
	for range n - 1 {
		copied := &nats.Msg{Subject: streams.WebhookSubject("ep", queue.NewID(job.Async), 1), Header: header, Data: m.Data}
		if _, err := js.PublishMsgAsync(copied, jetstream.WithStallWait(patience)); err != nil {
			s.t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// hanging has so many wait for each of some hosts that hang.
func (s *env) hanging(hosts, each int) {
	s.t.Helper()
	released := make(chan struct{})
	for range hosts {
		r := receive(s.t, func(_ http.ResponseWriter, r *http.Request) { hang(r, released) })
		s.completeMany(each, r.url)
	}
	s.t.Cleanup(func() { close(released) })
}

// sentBack counts how many of the tasks from first to last are given
// back to the queue.
func (s *env) sentBack(first, last uint64) *atomic.Int64 {
	s.t.Helper()
	var n atomic.Int64
	testenv.Handle(s.t, s.connect(s.t), "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED."+streams.Webhooks+".*", func(m *nats.Msg) {
		said := map[string]any{}
		_ = json.Unmarshal(m.Data, &said)
		if seq, ok := said["stream_seq"].(float64); ok && uint64(seq) >= first && uint64(seq) <= last {
			n.Add(1)
		}
	})
	return &n
}

// Thousands wait for a receiver whose first answers are slow, as they are on a
// busy machine, beside others that hang: none of them is ever sent away.
func TestWhatWaitsForAHealthyReceiverStaysInHand(t *testing.T) {
	t.Parallel()
	const healthy, hosts, step = 5000, 20, 500
	s := newEnv(t, time.Second)
	var answered atomic.Int64
	r := receive(t, func(http.ResponseWriter, *http.Request) {
		if answered.Add(1) <= 3 {
			<-time.After(300 * time.Millisecond) // slow is what is tested
		}
	})
	s.completeMany(healthy, r.url)
	naks := s.sentBack(1, healthy)
	s.hanging(hosts, 20)
	s.serve(lenient())
	for want := step; want <= healthy; want += step {
		testenv.Eventually(s.t, "more of the healthy one", func() bool { return len(r.calls()) >= want || naks.Load() > 0 })
	}
	if got := naks.Load(); got != 0 {
		t.Fatalf("got %d sent away, want none", got)
	}
	if got := len(r.calls()); got != healthy {
		t.Errorf("got %d calls, want %d", got, healthy)
	}
}

// Memory is full of what waits for hosts that hang: that goes back, and a
// healthy receiver behind it gets all, whole.
func TestFullMemoryHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const hosts, each, healthy = 3, 100, 500
	s := newEnv(t, time.Second)
	s.hanging(hosts, each)
	slow, naks := s.sentBack(1, hosts*each), s.sentBack(hosts*each+1, hosts*each+healthy)
	r := receive(t, answerWith(200))
	s.completeMany(healthy, r.url)
	cfg := lenient()
	cfg.maxWaiting = 100
	s.serve(cfg)
	testenv.Eventually(s.t, "all of the healthy one", func() bool { return len(r.calls()) >= healthy })
	if got := naks.Load(); got != 0 {
		t.Errorf("got %d of the healthy one sent away, want none", got)
	}
	if slow.Load() == 0 {
		t.Error("got none of the hanging ones sent away, want some")
	}
	for _, c := range r.calls() {
		if err := verify(c, s.endpoint.WebhookSecret); err != nil || !bytes.Contains(c.body, []byte(`"input":{"n":"<1>"}`)) {
			t.Fatalf("got %s, %v, want the input", c.body, err)
		}
	}
}

// The queue reports what waits, and nothing of what was taken.
func TestWhatWaitsIsExtended(t *testing.T) {
	t.Parallel()
	const all = 5
	s := newEnv(t)
	acks := testenv.Subscribe(t, s.connect(t), "$JS.ACK."+streams.Webhooks+".>")
	s.completeMany(all, "http://example.test/")
	cfg := Config{MaxPerHost: 1, MaxConcurrency: 1, maxWaiting: all}
	var workers sync.WaitGroup
	taken, release := make(chan struct{}, all), make(chan struct{})
	hosts := newHostQueues(cfg, func(*task) outcome { taken <- struct{}{}; <-release; return untried }, workers.Go)
	var came atomic.Int64
	stop := testenv.Background(t, func(ctx context.Context) error {
		return s.deliveries.Consume(ctx, func(c *deliveries.Task) { hosts.add(newTask(c)); came.Add(1) })
	})
	testenv.Eventually(s.t, "all wait but one", func() bool { return came.Load() == all && len(taken) == 1 })
	later := time.Now().Add(staleTimeout)
	hosts.extend(later)
	hosts.extend(later.Add(time.Second)) // too soon
	stop()
	hosts.close()
	close(release)
	workers.Wait()
	got := map[string]int{}
	for range 2 * (all - 1) {
		m, err := acks.NextMsg(patience)
		if err != nil {
			t.Fatalf("got %v, then %v", got, err)
		}
		got[string(m.Data)]++
	}
	if got["+WPI"] != all-1 || got[`-NAK {"delay": 1}`] != all-1 {
		t.Errorf("got %v, want %d each of +WPI and -NAK", got, all-1)
	}
}

// Hosts that hang, more than there are attempts at once, leave half of these to hosts that
// answer.
func TestHostsThatHangLeaveSlotsToThoseThatAnswer(t *testing.T) {
	t.Parallel()
	const slots = 4
	var workers sync.WaitGroup
	var hang, most atomic.Int64
	hung, good := make(chan struct{}, 2*slots), make(chan struct{})
	hosts := newHostQueues(Config{MaxPerHost: 1, MaxConcurrency: slots, maxWaiting: 100}, func(at *task) outcome {
		if at.to.origin == "good" {
			good <- struct{}{}
			return succeeded
		}
		if n := hang.Add(1); n > most.Load() {
			most.Store(n)
		}
		hung <- struct{}{}
		<-time.After(100 * time.Millisecond)
		hang.Add(-1)
		return failed
	}, workers.Go)
	add := func(origin string) {
		hosts.add(&task{Task: &deliveries.Task{Fresh: true}, to: target{origin: origin}, extended: time.Now()})
	}
	add("good")
	<-good
	testenv.Eventually(t, "it is known that it answers", func() bool {
		hosts.mu.Lock()
		defer hosts.mu.Unlock()
		return hosts.hosts["good"].proven
	})
	for i := range cap(hung) {
		add(fmt.Sprint("hangs", i))
	}
	for range cap(hung) {
		<-hung
		add("good")
		<-good
	}
	workers.Wait()
	if got := most.Load(); got > slots/2 {
		t.Errorf("got %d attempts at once to hosts that hang, want at most %d of %d", got, slots/2, slots)
	}
}
