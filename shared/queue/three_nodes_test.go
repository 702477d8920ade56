package queue

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// trio is an env on three nodes.
type trio struct {
	*testenv.Cluster
	q        *Queue
	e        endpoint.Endpoint
	consumer *Consumer
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{Cluster: testenv.NewCluster(t)}
	var err error
	if c.e, err = (endpoint.Endpoint{ID: "ep"}).Complete(); err != nil {
		t.Fatal(err)
	}
	c.e.Lease = 3 * time.Second
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if c.q, err = New(t.Context(), c.NC, Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if err := c.q.CreateEndpoint(t.Context(), c.e); err != nil {
		t.Fatal(err)
	}
	if c.consumer, err = c.q.Consume(t.Context(), c.e, "w", 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.consumer.Close)
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.q.Run(ctx) })
	g.Go(func() error { return c.q.Deadlines(ctx, 1) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// submit does what a client does with a 503: it tries again.
func (c *trio) submit(t *testing.T) job.ID {
	t.Helper()
	id := NewID(job.Async)
	for {
		_, err := c.q.Submit(t.Context(), c.e, id, job.Async, job.Request{Input: json.RawMessage(`{"n":1}`)})
		if err == nil {
			return id
		}
		if !errors.Is(err, bus.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// On three replicas every answer comes from a quorum, reads from the leader,
// and the loss of a node costs time only.
func TestThreeNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	t.Parallel()
	c := newTrio(t)
	id := c.submit(t)
	finish(t, next(t, c.consumer))
	for range 50 { // a stale replica would answer one of them
		if j, err := c.q.Status(t.Context(), c.e, id); err != nil || j.Status != job.Completed {
			t.Fatalf("got %v, %v right after the result", j, err)
		}
	}
	c.submitTwice(t)
	for _, stream := range []string{streams.Records(0), streams.Jobs(c.e.ID)} {
		c.losesLeader(t, stream)
	}
}

// losesLeader has the leader of the stream go while a job runs.
func (c *trio) losesLeader(t *testing.T, stream string) {
	t.Helper()
	first := c.submit(t)
	held := next(t, c.consumer)
	node := c.StreamLeader(stream)
	c.StopNode(node)
	defer c.StartNode(node)
	second := c.submit(t)
	finish(t, held)
	l := next(t, c.consumer)
	if l.Job.ID != second || held.Job.ID != first || l.Job.Lost != 0 {
		t.Errorf("without the leader of %s: took %s (lost %d), want %s", stream, l.Job.ID, l.Job.Lost, second)
	}
	finish(t, l)
	if j, err := c.q.Status(t.Context(), c.e, first); err != nil || j.Status != job.Completed || j.Retries() != 0 {
		t.Errorf("without the leader of %s: got %+v, %v", stream, j, err)
	}
}

// submitTwice has two processes submit the same jobs while the queue's leader
// goes; all must be answered with success, and each job must be listed and run once.
func (c *trio) submitTwice(t *testing.T) {
	t.Helper()
	other, err := New(t.Context(), c.Connect(t), Config{Replicas: testenv.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 40
	node := c.StreamLeader(streams.Jobs(c.e.ID))
	var ids []job.ID
	var g errgroup.Group
	for i := range jobs {
		id := NewID(job.Async)
		ids = append(ids, id)
		for _, q := range []*Queue{c.q, other} {
			g.Go(func() error { return submitAgain(t.Context(), q, c.e, id) })
		}
		if i == jobs/2 {
			c.StopNode(node)
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	s := &env{e: c.e}
	testenv.Eventually(t, "any replica lists each job once", func() bool {
		return slices.Equal(ids, slices.Sorted(slices.Values(idsOf(s.pages(t, other.Lists.Live, ListOptions{Most: 7})))))
	})
	c.StartNode(node)
	for range ids {
		l := next(t, c.consumer)
		finish(t, l)
		if l.Job.Run != 1 || l.Job.Attempt != 1 {
			t.Errorf("got run %d of attempt %d, want the first", l.Job.Run, l.Job.Attempt)
		}
	}
	testenv.Eventually(t, "any replica lists each end once", func() bool {
		ended := s.pages(t, other.Lists.Ended, ListOptions{Most: 7})
		got := map[job.ID]int{}
		for _, j := range ended {
			got[j.ID]++
		}
		return len(ended) == len(got) && !slices.ContainsFunc(ids, func(id job.ID) bool { return got[id] != 1 })
	})
	if stats, err := c.q.Counts.Stats(t.Context(), c.e); err != nil || stats.Queued != 0 {
		t.Errorf("got %+v, %v; want no job left", stats, err)
	}
}

// submitAgain does what a client with an idempotency key does with a 503.
func submitAgain(ctx context.Context, q *Queue, e endpoint.Endpoint, id job.ID) error {
	for {
		_, _, err := q.SubmitIdempotent(ctx, e, id, job.Async, job.Request{Input: json.RawMessage(`{"n":1}`)})
		if !errors.Is(err, bus.ErrUnavailable) {
			return err
		}
	}
}

// finish completes a lease as a worker does: again until JetStream answers.
func finish(t *testing.T, l *Lease) {
	t.Helper()
	for {
		_, err := l.Complete(t.Context(), json.RawMessage(`1`))
		if err == nil {
			return
		}
		if !errors.Is(err, bus.ErrUnavailable) {
			t.Fatalf("complete: %v", err)
		}
	}
}
