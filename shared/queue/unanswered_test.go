package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A pick-up may be stored while its answer does not come in time, as when the disk stands still
// or the server is frozen. The worker lives and runs nothing: it is not lost.
func TestAPickUpWithoutAnAnswerLosesNoWorker(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	first := s.consumer(t, s.queue(t, Config{Durable: func(_ context.Context, stream string) error {
		if stream == streams.Records(0) {
			return bus.ErrUnavailable
		}
		return nil
	}}), "first")
	ended := make(chan error, 1)
	go func() { _, err := first.Next(t.Context()); ended <- err }()
	testenv.Eventually(t, "the pick-up is stored", func() bool { return s.status(t, id).Status == job.InProgress })
	first.Close() // else it might get the job again itself
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want no job", err)
	}
	if l := next(t, s.consumer(t, s.q, "second")); l.Job.ID != id || l.Job.Lost != 0 {
		t.Errorf("got the job %s that lost %d workers, want %s and none", l.Job.ID, l.Job.Lost, id)
	}
}

// A leader without a majority answers that there is no record, and stores what it was sent once the
// others are back.
func TestAPickUpThatALeaderLeftAloneStoresLaterLosesNoWorker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := newTrio(t)
	const alone = 0
	c.lead(t, alone, streams.Jobs(c.e.ID))
	c.lead(t, alone, streams.Records(c.e.Partition))
	id := c.submit(t)
	q, err := New(t.Context(), c.Connect(t), Config{Replicas: testenv.Nodes, Point: func(p Point) {
		if p == AfterDelivery {
			c.StopNode(1)
			c.StopNode(2)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := q.Consume(t.Context(), c.e, "first", 1)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() { _, err := first.Next(t.Context()); ended <- err }()
	testenv.Eventually(t, "the pick-up is given up", func() bool { return time.Since(began) > first.claimTimeout()+3*time.Second })
	first.Close() // else it might get the job again itself
	c.StartNode(1)
	c.StartNode(2)
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want no job", err)
	}
	if l := next(t, c.consumer); l.Job.ID != id || l.Job.Lost != 0 {
		t.Errorf("got the job %s that lost %d workers, want %s and none", l.Job.ID, l.Job.Lost, id)
	}
}
