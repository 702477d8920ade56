package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus"
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

func TestEveryWriteOfAJobWaitsAtTheBarrier(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	g := &gate{}
	s.q = s.queue(t, Config{Durable: g.sync})
	s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(`"` + strings.Repeat("x", maxInlinePayload) + `"`) })
	if g.at(streams.Jobs("ep")) != 1 || g.at(streams.Payloads(0)) == 0 {
		t.Errorf("submitted: got waits %v, want one for the job and some for its input", g.waited)
	}
	l := next(t, s.consumer(t, s.q, "w"))
	records := g.at(streams.Records(0))
	if records == 0 {
		t.Errorf("taken: got waits %v, want one for the record", g.waited)
	}
	if err := errors.Join(l.Emit(t.Context(), json.RawMessage(`1`)), l.Flush(t.Context())); err != nil {
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
	t.Parallel()
	s := newEnv(t)
	g := &gate{broken: 2}
	s.q = s.queue(t, Config{Durable: g.sync})
	id := s.submit(t)
	if got := g.at(streams.Jobs("ep")); got != 3 {
		t.Errorf("got %d waits, want three", got)
	}
	consumer := s.consumer(t, s.q, "w")
	if l := next(t, consumer); l.Job.ID != id {
		t.Errorf("got job %s, want %s", l.Job.ID, id)
	}
	nothing(t, s.consumer(t, s.q, "other"), 100*time.Millisecond)
}

func TestABrokenDiskIsUnavailableWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
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
	t.Parallel()
	s := newEnv(t)
	g := &gate{}
	end := s.ServeBarrier(t, streams.DurablePrefix, g.sync)
	s.WaitForBarrier(t, streams.DurablePrefix)
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
	t.Parallel()
	s := newEnv(t)
	if s.q.bus.HasBarrier() {
		t.Fatal("got a barrier that nobody serves")
	}
	g := &gate{}
	s.ServeBarrier(t, streams.DurablePrefix, g.sync)
	deadline := time.After(soon)
	for tick := time.NewTicker(10 * time.Millisecond); !s.q.bus.HasBarrier(); {
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
	t.Parallel()
	s := newEnv(t)
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
	if err := q.bus.WaitDurable(t.Context(), streams.Records(0), q.nc.ConnectedServerId()); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
	s.q = q
	id := s.submit(t)
	s.want(t, id, job.InQueue)
}
