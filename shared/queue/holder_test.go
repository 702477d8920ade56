package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// expired makes the server redeliver a message as if its lease had ended while
// the server stood still: a nak puts it on the same list, and no heartbeat takes
// it off (streams.TestFactHeartbeatsDoNotStopARedelivery).
func expired(t *testing.T, q *Queue, l *Lease) {
	t.Helper()
	if err := q.nc.Publish(l.ackTo, []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
}

// A worker that beats keeps its job although the server hands it out again, and
// the worker that gets it has seen good service for more than a lease.
func TestALivingHolderIsAskedAndKeepsItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	second := s.queue(t, Config{})
	testenv.Eventually(t, "served for a lease", func() bool { return second.bus.Availability().Age() > s.e.Lease })
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "holder"))
	ctx, stop := context.WithCancel(t.Context())
	wait := beat(ctx, t, s.e.Lease, []*Lease{l})
	for range 3 {
		expired(t, s.q, l)
		nothing(t, s.consumer(t, second, "other"), s.e.Lease)
	}
	stop()
	wait()
	if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Run != 1 || j.Lost != 0 {
		t.Errorf("got %+v, %v, want the first run's end", j, err)
	}
	s.want(t, id, job.Completed)
}

// The same for a worker that is heard of by a gateway, which is busy with nudges, as when many
// jobs are cancelled.
func TestALivingRemoteHolderIsAskedAndKeepsItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = 3 * askTimeout })
	second := s.queue(t, Config{})
	testenv.Eventually(t, "served for a lease", func() bool { return second.bus.Availability().Age() > s.e.Lease })
	id, l := s.handed(t, "remote")
	busy := make(chan struct{})
	defer close(busy)
	stop, err := s.q.Remote.OnNudge(s.e, func(job.ID) { <-busy })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	second.Remote.Nudge(s.e, "another")
	if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, "remote"); err != nil {
		t.Fatal(err)
	}
	expired(t, s.q, l)
	nothing(t, s.consumer(t, second, "other"), 2*askTimeout)
	if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, "remote"); err != nil {
		t.Errorf("the worker lost its job: %v", err)
	}
	// Nothing is heard of it for a lease: now it is lost.
	l2 := next(t, s.consumer(t, second, "other"))
	if l2.Job.ID != id || l2.Job.Lost != 1 {
		t.Errorf("got %+v, want the job of the silent worker", l2.Job)
	}
}

// Workers that end before they have lived for a lease take over all the same, if
// somebody else has seen good service for as long.
func TestANewProcessTakesOverOnTheWordOfAnOlderOne(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = 5 * time.Second })
	s.deadlines(t)
	id := s.submit(t)
	holder := s.queue(t, Config{})
	l := next(t, s.consumer(t, holder, "dies"))
	testenv.Eventually(t, "the holder has been silent for a lease", func() bool { return !l.alive() && s.q.bus.Availability().Age() > s.e.Lease })
	expired(t, s.q, l)
	young := s.queue(t, Config{})
	got := next(t, s.consumer(t, young, "young"))
	if age := young.bus.Availability().Age(); got.Job.ID != id || got.Job.Lost != 1 || age >= s.e.Lease {
		t.Errorf("got %+v after %s of service, want the job of the silent worker within a lease", got.Job, age)
	}
}

// A delivery that is older than the record's life is dropped: the job ended and
// was forgotten while the worker was suspended.
func TestADeliveryOlderThanItsJobRunsNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	q := s.queue(t, Config{})
	w := s.consumer(t, q, "suspended")
	old := s.delivery(t, q)
	l := next(t, s.consumer(t, s.q, "other")) // after a lease
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.forgetNow(t, id)
	for name, m := range map[string]*received{
		"its pull was asked for long ago": {Msg: old.Msg, asked: old.asked.Add(-s.e.Lease), steady: true},
		"it came just after a gap":        {Msg: old.Msg, asked: time.Now(), steady: false},
	} {
		got, err := w.claim(t.Context(), m)
		if got != nil || err != nil {
			t.Errorf("%s: got %+v, %v, want nothing", name, got, err)
		}
		if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound: the job was forgotten", name, err)
		}
	}
}

// The same, suspended between the look at the queue and the write of the record.
func TestAPickUpThatComesTooLateExpires(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	q := s.queue(t, Config{})
	w := s.consumer(t, q, "suspended")
	old := s.delivery(t, q)
	l := next(t, s.consumer(t, s.q, "other"))
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.forgetNow(t, id)
	msg, _, err := w.open(old)
	if err != nil {
		t.Fatal(err)
	}
	old.asked = old.asked.Add(-s.e.Lease)
	if got, err := w.begin(t.Context(), old, msg); got != nil || err != nil {
		t.Errorf("got %+v, %v, want nothing", got, err)
	}
	testenv.Eventually(t, "the job is forgotten again", func() bool {
		_, err := s.q.Status(t.Context(), s.e, id)
		return errors.Is(err, job.ErrNotFound)
	})
}

// A delivery that is not fresh is not given back: the message is another's now.
func TestAnOldDeliveryIsNotGivenBack(t *testing.T) {
	now := time.Now()
	const lease = 10 * time.Second
	for name, tc := range map[string]struct {
		age  time.Duration
		want bool
	}{
		"just now":                      {0, true},
		"nearly half of the lease ago":  {lease/2 - 1, true},
		"half of the lease ago":         {lease / 2, false},
		"the wall clock was set back":   {-time.Hour, true},
		"longer ago than any lease may": {2 * endpoint.MaxLease, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &received{asked: now.Add(-tc.age)}
			if got := m.fresh(now, lease); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A delivery that comes while a process has just noticed a gap of service, as under
// load or after a restart of the server, is given back at once by a slot that does not
// wait. The lease is an hour here: what is not given back would stay for the test's time.
func TestADeliveryAfterAGapIsGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Hour })
	q := s.queue(t, Config{})
	w := s.consumer(t, q, "has a pull open")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if l, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v, want context.Canceled", l, err)
		}
	}()
	s.waitForPull(t, job.Normal)
	cancel()
	<-ended
	q.bus.Availability().Failed()
	id := s.submit(t)
	if got := next(t, s.consumer(t, s.q, "other")).Job.ID; got != id {
		t.Errorf("got %s, want %s", got, id)
	}
}

// A pick-up whose write took long starts the clock of the run when it was taken:
// the handler has not begun.
func TestAnOutageAtThePickUpDoesNotCountAsRunning(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.ExecutionTimeout = 5 * time.Second })
	old := s.delivery(t, s.q)
	w := s.consumer(t, s.q, "w")
	got := make(chan *Lease, 1)
	s.Stop()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		l, err := w.claim(ctx, old)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	away := time.NewTimer(2 * slowClaim)
	<-away.C
	back := s.q.Now()
	s.Start()
	l := <-got
	if l == nil {
		t.Fatalf("job %s was not picked up", id)
	}
	// The clock is measured again then, and may go back by milliseconds.
	if in := l.Deadline().Sub(back); in < 5*time.Second-slowClaim/2 {
		t.Errorf("deadline %s after NATS was back, want 5s or more", in)
	}
}

// delivery is that of the next queue message to a process that has done
// nothing with it yet.
func (s *env) delivery(t *testing.T, q *Queue) *received {
	t.Helper()
	inbox := make(chan *nats.Msg, 1)
	name := q.nc.NewInbox()
	sub, err := q.nc.ChanSubscribe(name, inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	asked := time.Now()
	if err := sendPull(q.nc, s.e.ID, job.Normal, name, 1, maxPullExpires); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-inbox:
		if m.Header.Get("Status") != "" {
			t.Fatalf("no delivery: %s", m.Header.Get("Description"))
		}
		return &received{Msg: m, asked: asked, server: serverTag(q.nc), steady: true}
	case <-time.After(soon):
		t.Fatal("no delivery")
		return nil
	}
}

// forgetNow removes the record of a job that ended, as the recorder does when
// its retention is over.
func (s *env) forgetNow(t *testing.T, id job.ID) {
	t.Helper()
	testenv.Eventually(t, "its ack is processed", func() bool { return s.Messages(t, streams.Jobs(s.e.ID)) == 0 })
	r, err := s.q.read.record(t.Context(), record.LocationOf(s.e), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.q.bus.Remove(t.Context(), streams.Records(s.e.Partition), r.Seq); err != nil {
		t.Fatal(err)
	}
}
