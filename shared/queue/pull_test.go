package queue

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// ends has the server end a pull once more, as it may when it shuts down and loses its
// leadership.
func (s *env) ends(t *testing.T, reply, status string) {
	t.Helper()
	m := nats.NewMsg(reply)
	m.Header.Set("Status", status)
	if err := s.q.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	if err := s.q.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// last is the subject of the last request and its number.
func (p *pull) last() (reply string, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in.reply(), p.in.number
}

// A pull whose end comes twice, the second time while the next is open, brings a delivery
// whose age is known.
func TestAPullEndsOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	p, err := s.consumer(t, s.q, "w").newPull(job.Normal)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.wait(true)
	p.ask()
	first, _ := p.last()
	s.ends(t, first, "409")
	<-p.ended
	p.ask()
	asked := p.in.asked
	s.ends(t, first, "409")
	s.submit(t)
	select {
	case m := <-p.got:
		if asked.IsZero() || !m.asked.Equal(asked) {
			t.Errorf("its pull was asked for at %v, want %v", m.asked, asked)
		}
	case <-time.After(soon):
		t.Fatal("no delivery")
	}
	select {
	case <-p.ended:
		t.Error("the next pull ended with the first")
	default:
	}
}

// A client that is cut off subscribes to what it drained again when it is back: an inbox
// is kept until the server knows of its end.
func TestAnInboxEndsOnceTheServerKnowsOfIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	q := s.queue(t, Config{})
	p, err := s.consumer(t, q, "w").newPull(job.Normal)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	testenv.Eventually(t, "the client is cut off", func() bool { return !q.nc.IsConnected() })
	p.close()
	if p.in.sub.IsDraining() || !p.in.sub.IsValid() {
		t.Error("the inbox ended while the client was cut off")
	}
	s.Start()
	testenv.Eventually(t, "the inbox ends", func() bool { return !p.in.sub.IsValid() })
}

// A slot that waits asks for low-priority jobs again as soon as that pull ends, not with
// the next normal one.
func TestALowPriorityPullIsOpenedAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Hour })
	w := s.consumer(t, s.q, "w")
	go func() { _, _ = w.Next(t.Context()) }()
	s.waitForPull(t, job.LowPriority)
	normal, low := w.all[0].normal, w.all[0].low
	const tries = 8 // a normal pull may end at the same time
	for range tries {
		_, before := normal.last()
		reply, ended := low.last()
		s.ends(t, reply, "408")
		testenv.Eventually(t, "the low-priority pull is opened again", func() bool { _, n := low.last(); return n > ended })
		if _, now := normal.last(); now == before {
			return
		}
	}
	t.Errorf("in %d tries it was opened again with the next normal pull only", tries)
}
