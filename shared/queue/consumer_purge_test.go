package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// sendPull asks the consumer of a class for up to batch messages on inbox.
func sendPull(nc *nats.Conn, endpoint string, c job.Class, inbox string, batch int, expires time.Duration) error {
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, expires.Nanoseconds())
	return nc.PublishRequest(pullSubject(endpoint, c), inbox, body)
}

// A message that a worker could not decide on, in an outage for example, was put
// off: no fetch brings it, and it is IN_QUEUE all the same.
func TestPurgeCancelsWhatWasPutOff(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute })
	inbox := s.NC.NewInbox()
	sub := testenv.Subscribe(t, s.NC, inbox)
	id := s.submit(t)
	if err := sendPull(s.q.nc, s.e.ID, job.Normal, inbox, 1, maxPullExpires); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(soon)
	if err != nil {
		t.Fatal(err)
	}
	nak := fmt.Appendf(nil, `-NAK {"delay":%d}`, time.Hour)
	if _, err := s.NC.RequestWithContext(t.Context(), m.Reply, nak); err != nil { // answered once it is done
		t.Fatal(err)
	}
	running := s.submit(t)
	next(t, s.consumer(t, s.q, "w"))
	if n, err := s.q.Purge(t.Context(), s.e); err != nil || n != 1 {
		t.Errorf("got %d, %v, want the one that was put off", n, err)
	}
	s.want(t, id, job.Cancelled)
	s.want(t, running, job.InProgress)
	if n := s.Messages(t, streams.Jobs(s.e.ID)); n != 1 {
		t.Errorf("got %d messages left in the queue, want the running job's", n)
	}
}

func TestPurgeCancelsWhatWaitsAndSparesWhatRuns(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	const n = 700
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = s.submit(t, func(r *job.Request) { r.Policy.LowPriority = i%3 == 0 })
	}
	removed, err := s.q.Purge(t.Context(), s.e)
	if err != nil || removed != n {
		t.Fatalf("removed %d, %v; want %d", removed, err, n)
	}
	s.want(t, ids[0], job.Cancelled)
	s.want(t, ids[n-1], job.Cancelled)
	s.want(t, running, job.InProgress)
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.q.Purge(t.Context(), s.e); err != nil || removed != 0 {
		t.Errorf("again: %d, %v", removed, err)
	}
}

func TestLowPriority(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	low := func(r *job.Request) { r.Policy.LowPriority = true }
	l1 := s.submit(t, low)
	n1 := s.submit(t)
	w := s.consumer(t, s.q, "w")
	for _, want := range []job.ID{n1, l1} {
		l := next(t, w)
		if l.Job.ID != want {
			t.Fatalf("got %s, want %s: normal jobs go first", l.Job.ID, want)
		}
		if _, err := l.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A busy machine may be late once; a worker that does not look is always.
func TestAnIdleWorkerStartsALowPriorityJobWithin100Milliseconds(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.consumer(t, s.q, "w")
	const tries = 5
	var took []time.Duration
	for range tries {
		got := make(chan *Lease, 1)
		go func() {
			if l, err := w.Next(t.Context()); err == nil {
				got <- l
			}
		}()
		s.waitForPull(t, job.LowPriority)
		s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
		select {
		case l := <-got:
			if took = append(took, l.Job.Delay()); l.Job.Delay() <= 100*time.Millisecond {
				return
			}
			if _, err := l.Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		case <-time.After(soon):
			t.Fatal("an idle worker did not start a low-priority job")
		}
	}
	t.Errorf("started after %v, want at most 100 ms", took)
}

// waitForPull returns once a slot waits for a job of the class.
func (s *env) waitForPull(t *testing.T, class job.Class) {
	t.Helper()
	testenv.Eventually(t, "a pull is open", func() bool {
		c, err := s.JS.Consumer(t.Context(), streams.Jobs(s.e.ID), streams.Consumer(class))
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
}
