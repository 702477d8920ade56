package deliveries

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// deliverers are several processes that share webhook tasks, each of which is
// done, put off or forgotten by chance.
type deliverers struct {
	*env
	all  sync.WaitGroup
	mu   sync.Mutex
	came map[job.ID]bool
	done map[job.ID]bool
}

// process works until it is killed: its connection is gone at once, whatever
// it held.
func (d *deliverers) process(t *testing.T) (kill func()) {
	t.Helper()
	nc := d.Connect(t)
	q, err := queue.New(t.Context(), nc, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := New(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.all.Go(func() { _ = q.Run(ctx) })
	d.all.Go(func() { _ = store.Consume(ctx, func(c *Task) { d.decide(ctx, c) }) })
	kill = func() { nc.Close(); cancel() }
	t.Cleanup(kill)
	return kill
}

func (d *deliverers) decide(ctx context.Context, c *Task) {
	id := c.Job.ID
	done := func() {
		d.mu.Lock()
		d.done[id] = true
		d.mu.Unlock()
		c.Ack(ctx)
	}
	d.mu.Lock()
	d.came[id] = true
	d.mu.Unlock()
	switch n := rand.IntN(1000); {
	case n < 3:
		c.Nak(time.Duration(rand.IntN(300)) * time.Millisecond)
	case n < 5: // it comes again
	case n < 10:
		d.all.Go(func() {
			<-time.After(time.Duration(rand.IntN(700)) * time.Millisecond)
			done()
		})
	default:
		done()
	}
}

// Two processes work the same queue and are killed; the server is restarted.
// Nothing leaves the queue before it is done.
func TestTwoProcessesRemoveNothingThatIsNotDone(t *testing.T) {
	t.Parallel()
	const rounds, each = 4, 1500
	d := &deliverers{env: newEnv(t), came: map[job.ID]bool{}, done: map[job.ID]bool{}}
	t.Cleanup(d.all.Wait)
	d.redeliverAfter(t, 500*time.Millisecond)
	for round := range rounds {
		d.many(t, each) // while nobody works
		first, second := d.process(t), d.process(t)
		some := func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.done) > round*each+each/10+rand.IntN(each/2)
		}
		testenv.Eventually(t, "some are done", some)
		first()
		if round%2 == 1 {
			server := d.q.Bus().Conn().ConnectedServerId()
			d.Stop()
			d.Start()
			testenv.Eventually(t, "the server is back", func() bool {
				_, err := d.JS.Stream(t.Context(), streams.Webhooks)
				return err == nil && d.q.Bus().Conn().IsConnected() && d.q.Bus().Conn().ConnectedServerId() != server
			})
		}
		d.many(t, each/10)
		testenv.Eventually(t, "the queue is empty", func() bool { return d.Messages(t, streams.Webhooks) == 0 })
		second()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if want := rounds * (each + each/10); len(d.done) != want {
		t.Errorf("%d came and %d are done, want all %d", len(d.came), len(d.done), want)
	}
}

// many are so many copies of one webhook task.
func (s *env) many(t *testing.T, n int) {
	t.Helper()
	heard := testenv.Subscribe(t, s.q.Bus().Conn(), "webhooks.>")
	s.ended(t, `{}`)
	m, err := heard.NextMsg(soon)
	if err != nil {
		t.Fatal(err)
	}
	header := nats.Header{}
	for key, values := range m.Header {
		if strings.HasPrefix(key, "Flightline-") {
			header[key] = values
		}
	}
	_ = heard.Unsubscribe()
	for range n - 1 {
		copied := &nats.Msg{Subject: streams.WebhookSubject("ep", queue.NewID(job.Async), 1), Header: maps.Clone(header), Data: m.Data}
		if _, err := s.q.Bus().Store(t.Context(), streams.Webhooks, copied); err != nil {
			t.Fatal(err)
		}
	}
}

// All are done but one: that one stays, and comes again.
func TestWhatIsNotDoneStays(t *testing.T) {
	const all = 192
	for name, open := range map[string]int{"all are done": -1, "one is not": all / 2, "the oldest is not": 0} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			s.many(t, all)
			got := make([]*Task, 0, all)
			from := s.tasks(t)
			for range all {
				got = append(got, nextTask(t, from))
			}
			want := uint64(0)
			for i, c := range got {
				if i == open {
					want = 1
					continue
				}
				c.Ack(t.Context())
			}
			s.eventuallyLeft(t, streams.Webhooks, want)
			if open >= 0 {
				got[open].Nak(0)
				if c := nextTask(t, from); c.Job.ID != got[open].Job.ID {
					t.Errorf("got %s again, want %s", c.Job.ID, got[open].Job.ID)
				}
			}
		})
	}
}

// A server that is alone hands out what is not on the disk yet. After a power
// loss it gives the numbers to others: what was done before must take none of
// them with it, nor be taken for one of them.
func TestWhatIsDoneTakesNoneOfTheSameNumber(t *testing.T) {
	t.Parallel()
	const all = 100
	s := newEnv(t)
	durable := func(context.Context, string) error { return nil } // a barrier: the server does not wait for the disk
	s.use(s.store(t, queue.Config{Durable: durable}))
	s.many(t, all)
	from := s.tasks(t)
	before := make([]*Task, 0, all)
	for range all {
		before = append(before, nextTask(t, from))
	}
	before[0].Ack(t.Context())
	s.Stop()
	before[1].Ack(t.Context())
	s.Start()
	testenv.Eventually(t, "the server is back", func() bool {
		return s.q.Bus().Conn().IsConnected() && s.JS.DeleteStream(t.Context(), streams.Webhooks) == nil
	})
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	s.many(t, all)
	after := map[job.ID]*Task{}
	for range all {
		c := nextTask(t, from)
		after[c.Job.ID] = c
	}
	if err := before[2].Load(t.Context()); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("load: got %+v, %v, want %v", before[2].Job, err, job.ErrNotFound)
	}
	if err := before[3].DeadLetter(t.Context(), ReasonGivenUp, "https://a:443"); err != nil || s.Messages(t, streams.Undelivered) != 0 {
		t.Errorf("keep: got %v and %d kept, want nothing", err, s.Messages(t, streams.Undelivered))
	}
	for _, c := range before {
		c.Ack(t.Context())
	}
	if err := s.q.Bus().Conn().Flush(); err != nil { // the server has read what was said to it
		t.Fatal(err)
	}
	if left := s.Messages(t, streams.Webhooks); left != all {
		t.Fatalf("got %d left, want all %d that came since", left, all)
	}
	for _, c := range after {
		c.Ack(t.Context())
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
}

// redeliverAfter has tasks without an acknowledgement redelivered soon.
func (s *env) redeliverAfter(t *testing.T, wait time.Duration) {
	t.Helper()
	c, err := s.JS.Consumer(t.Context(), streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.AckWait = wait
	if _, err := s.JS.UpdateConsumer(t.Context(), streams.Webhooks, cfg); err != nil {
		t.Fatal(err)
	}
}
