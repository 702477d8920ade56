package streaming

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// Two instances share a queue that has become long, and each sweeps what it
// may: one is killed, one stands still for longer than it may keep what it
// holds and goes on, the server is started again, a destination is paused. Each
// webhook arrives, and what is kept is all there.
func TestTwoInstancesSweepNothingUndelivered(t *testing.T) {
	t.Parallel()
	s := newTold(t)
	s.OK("endpoint", "create", "ep", "--webhook-retries", "1s")
	var purges atomic.Int64
	testenv.Handle(t, s.bus.NC, bus.StreamPurge(streams.Webhooks), func(*nats.Msg) { purges.Add(1) })
	m, paused, failing := newMailbox(t), newMailbox(t), refusing(t)
	s.OK("webhook", "pause", "ep", paused.url)
	ended, parked, refused := map[job.ID]time.Time{}, map[job.ID]time.Time{}, map[job.ID]time.Time{}
	for _, fault := range []func(one, other *program.Process){
		func(one, _ *program.Process) { one.Kill() },
		func(*program.Process, *program.Process) {
			s.bus.Stop()
			s.bus.Start()
			s.Eventually("the bus is back", s.answers)
		},
		func(one, other *program.Process) { s.still(one, 5*time.Second); other.Kill() },
	} {
		release := m.hold(len(ended) + *webhookJobs/4 + rand.IntN(*webhookJobs/2))
		maps.Copy(ended, s.complete(*webhookJobs, m.url)) // while nobody delivers
		maps.Copy(parked, s.complete(10, paused.url))
		maps.Copy(refused, s.complete(10, failing))
		swept := purges.Load()
		one := s.deliverer() // which takes all, in their order
		// What takes long to come is acknowledged one by one instead.
		s.Eventually("some are swept, or no more may come", func() bool { return purges.Load() > swept || m.isFull() })
		other := s.deliverer()
		maps.Copy(ended, s.complete(*webhookJobs/10, m.url)) // which both share
		s.redeliverSoon()
		if came := len(m.first(t)); came >= len(ended) {
			t.Fatalf("all %d came before the fault, which was to meet some", came)
		}
		release()
		fault(one, other)
		last := s.deliver()
		s.redeliverSoon()
		s.Eventually("all came", func() bool { return len(m.first(t)) >= len(ended) })
		s.Eventually("the others are kept", func() bool { return s.kept() == len(parked)+len(refused) })
		s.Eventually("nothing else is left", func() bool { return s.inStream(streams.Webhooks) == 0 })
		for _, d := range []*program.Process{one, other, last} {
			d.Kill()
		}
	}
	s.deliver()
	s.OK("webhook", "resume", "ep", paused.url)
	s.Eventually("what was parked came", func() bool { return len(paused.first(t)) == len(parked) })
	for id := range ended {
		if m.first(t)[id].id == "" {
			t.Errorf("job %s never came", id)
		}
	}
	t.Logf("%d webhooks in %d calls, %d purges", len(ended), m.calls(), purges.Load())
}

// deliverer starts the service and does not wait for it.
func (s *told) deliverer() *program.Process {
	s.T.Helper()
	return s.Start("serve", "webhook", "--webhook-allow-http", "--webhook-allow-networks", "127.0.0.0/8")
}

// still makes a process stand still, and go on later.
func (s *told) still(d *program.Process, wait time.Duration) {
	s.T.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := d.Cmd.Process.Signal(signal); err != nil {
			s.T.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			<-time.After(wait)
		}
	}
}

// answers reports whether the bus does, after it was away.
func (s *told) answers() bool { return s.kept() >= 0 }

// kept is how many completions nobody tries to deliver, -1 if the bus does not say.
func (s *told) kept() int { return s.inStream(streams.Undelivered) }

// inStream is how many messages a stream has, -1 if the bus does not say.
func (s *told) inStream(name string) int {
	got, err := s.bus.JS.Stream(s.T.Context(), name)
	if err != nil {
		return -1
	}
	return int(got.CachedInfo().State.Msgs)
}

// refusing is the address of a receiver that wants nothing.
func refusing(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(web.Close)
	return web.URL
}
