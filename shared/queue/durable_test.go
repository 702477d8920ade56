package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus/barrier"
	"flightline/shared/job"
	"flightline/streams"
)

// gate is a barrier that notes who waited, and lets nobody through while
// broken.
type gate struct {
	mu     sync.Mutex
	waited map[string]int // by stream
	broken int            // how many to turn away
}

var errBrokenDisk = errors.New("broken disk")

func (g *gate) sync(_ context.Context, stream string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waited == nil {
		g.waited = map[string]int{}
	}
	g.waited[stream]++
	if g.broken > 0 {
		g.broken--
		return errBrokenDisk
	}
	return nil
}

func (g *gate) at(stream string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waited[stream]
}

func (g *gate) breakFor(waits int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = waits
}

// serveBarrier is the process that has the server. It ends with the test or
// by the returned function.
func (s *site) serveBarrier(t *testing.T, sync barrier.Func) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	nc, done := s.Connect(t), make(chan struct{})
	go func() {
		defer close(done)
		if err := barrier.Serve(ctx, nc, streams.DurablePrefix, sync); err != nil {
			t.Error(err)
		}
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}

func (s *site) barrierIsServed(t *testing.T) {
	t.Helper()
	for there, r := false, barrier.NewRemote(s.NC, streams.DurablePrefix); !there; {
		var err error
		if there, err = r.Exists(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryWriteOfAJobWaitsAtTheBarrier(t *testing.T) {
	s := newSite(t)
	g := &gate{}
	s.q = s.queue(t, Config{Durable: g.sync})
	s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`"` + strings.Repeat("x", inlineMost) + `"`) })
	if g.at(streams.Jobs("ep")) != 1 || g.at(streams.Payloads(0)) == 0 {
		t.Errorf("submitted: got waits %v, want one for the job and some for its input", g.waited)
	}
	l := next(t, s.taker(t, s.q, "w"))
	records := g.at(streams.Records(0))
	if records == 0 {
		t.Errorf("taken: got waits %v, want one for the record", g.waited)
	}
	if err := l.Emit(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	if g.at(streams.Output(0)) != 1 {
		t.Errorf("emitted: got waits %v, want one for the chunk", g.waited)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`2`)); err != nil {
		t.Fatal(err)
	}
	if got := g.at(streams.Records(0)); got != records+1 {
		t.Errorf("completed: got %d waits for records, want %d", got, records+1)
	}
}

func TestAWriteThatMayNotBeOnTheDiskIsLookedForAgainAndNotMadeTwice(t *testing.T) {
	s := newSite(t)
	g := &gate{broken: 2}
	s.q = s.queue(t, Config{Durable: g.sync})
	id := s.submit(t)
	if got := g.at(streams.Jobs("ep")); got != 3 {
		t.Errorf("got %d waits, want three", got)
	}
	taker := s.taker(t, s.q, "w")
	if l := next(t, taker); l.Job.ID != id {
		t.Errorf("got job %s, want %s", l.Job.ID, id)
	}
	nothing(t, s.taker(t, s.q, "other"), 100*time.Millisecond)
}

func TestABrokenDiskIsUnavailableWithinFiveSeconds(t *testing.T) {
	s := newSite(t)
	g := &gate{}
	s.q = s.queue(t, Config{Durable: g.sync})
	g.breakFor(1 << 30)
	inTime(t, 5*time.Second, func() time.Duration {
		before := g.at(streams.Jobs("ep"))
		took, err := s.unavailable(t)
		if g.at(streams.Jobs("ep")) == before { // the error is the last try's, which may not have got so far
			t.Errorf("got %v without a wait for the disk", err)
		}
		return took
	})
}

func TestAnotherProcessWaitsAtTheBarrierThatIsServed(t *testing.T) {
	s := newSite(t)
	g := &gate{}
	end := s.serveBarrier(t, g.sync)
	s.barrierIsServed(t)
	s.q = s.queue(t, Config{})
	s.submit(t)
	if got := g.at(streams.Jobs("ep")); got != 1 {
		t.Fatalf("got %d waits, want one", got)
	}
	end()
	inTime(t, 5*time.Second, func() time.Duration {
		took, _ := s.unavailable(t)
		return took
	})
}

func TestABarrierThatIsServedLaterIsFound(t *testing.T) {
	s := newSite(t)
	if s.q.barrier.Load() != nil {
		t.Fatal("got a barrier that nobody serves")
	}
	g := &gate{}
	s.serveBarrier(t, g.sync)
	deadline := time.After(soon)
	for tick := time.NewTicker(10 * time.Millisecond); s.q.barrier.Load() == nil; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the barrier was not found")
		}
	}
	s.submit(t)
	if got := g.at(streams.Jobs("ep")); got != 1 {
		t.Errorf("got %d waits, want one", got)
	}
}

func TestAWriteIsLookedForAgainAfterTheServerWasStartedAnew(t *testing.T) {
	s := newSite(t)
	var restart sync.Once
	var q *Queue
	startAnew := func() {
		before := q.nc.ConnectedServerId()
		s.Stop()
		s.Start()
		for q.nc.ConnectedServerId() == before || !q.nc.IsConnected() {
			<-time.After(time.Millisecond)
		}
	}
	q = s.queue(t, Config{Durable: func(context.Context, string) error {
		restart.Do(startAnew)
		return nil
	}})
	if err := q.durable(t.Context(), streams.Records(0), q.nc.ConnectedServerId()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	s.q = q
	id := s.submit(t)
	s.want(t, id, job.InQueue)
}
