package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/streams"
)

// deliverers are several processes that share completions, each of which is
// done, put off or forgotten by chance.
type deliverers struct {
	*site
	all    sync.WaitGroup
	mu     sync.Mutex
	came   map[job.ID]bool
	done   map[job.ID]bool
	purges atomic.Int64
}

// process works until it is killed: its connection is gone at once, whatever
// it held.
func (d *deliverers) process(t *testing.T) (kill func()) {
	t.Helper()
	nc := d.Connect(t)
	q, err := New(t.Context(), nc, Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.all.Go(func() { _ = q.Run(ctx) })
	d.all.Go(func() { _ = q.Completions(ctx, func(c *Completion) { d.decide(ctx, c) }) })
	kill = func() { nc.Close(); cancel() }
	t.Cleanup(kill)
	return kill
}

func (d *deliverers) decide(ctx context.Context, c *Completion) {
	id := c.Job.ID
	done := func() {
		d.mu.Lock()
		d.done[id] = true
		d.mu.Unlock()
		c.Done(ctx)
	}
	d.mu.Lock()
	d.came[id] = true
	d.mu.Unlock()
	switch n := rand.IntN(1000); {
	case n < 3:
		c.Later(time.Duration(rand.IntN(300)) * time.Millisecond)
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

// Two processes work the same queue, sweep it as each may, and are killed; the
// server is started anew. Nothing leaves the queue that nobody was done with.
func TestTwoProcessesSweepNothingThatIsNotDone(t *testing.T) {
	const rounds, each = 4, 1500
	d := &deliverers{site: newSite(t), came: map[job.ID]bool{}, done: map[job.ID]bool{}}
	t.Cleanup(d.all.Wait)
	d.redeliverAfter(t, 500*time.Millisecond)
	sub, err := d.NC.Subscribe(streams.StreamPurge(streams.Webhooks), func(*nats.Msg) { d.purges.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
	for round := range rounds {
		d.many(t, each) // while nobody works
		first, second := d.process(t), d.process(t)
		some := func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.done) > round*each+each/10+rand.IntN(each/2)
		}
		eventually(t, "some are done", some)
		first()
		if round%2 == 1 {
			server := d.q.nc.ConnectedServerId()
			d.Stop()
			d.Start()
			eventually(t, "the server is back", func() bool {
				_, err := d.JS.Stream(t.Context(), streams.Webhooks)
				return err == nil && d.q.nc.IsConnected() && d.q.nc.ConnectedServerId() != server
			})
		}
		d.many(t, each/10)
		eventually(t, "the queue is empty", func() bool { return d.left(t, streams.Webhooks) == 0 })
		second()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if want := rounds * (each + each/10); len(d.done) != want {
		t.Errorf("%d came and %d are done, want all %d", len(d.came), len(d.done), want)
	}
	if d.purges.Load() == 0 {
		t.Error("got no purge, want the fast way tried")
	}
	t.Logf("%d purges", d.purges.Load())
}

// redeliverAfter makes what nobody tells of come again soon.
func (s *site) redeliverAfter(t *testing.T, wait time.Duration) {
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
