package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
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

// The pick-up is followed by a touch if it took long. Its answer may be lost too, and it may be
// stored between the read and the write that give the job back.
func TestAPickUpIsGivenBackThoughItsRecordIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Minute }) // none is delivered again
	c := s.consumer(t, s.q, "w")
	pulls, err := c.enter()
	if err != nil {
		t.Fatal(err)
	}
	defer c.leave(pulls)
	const jobs = 10 // each is written between the two nearly always
	for range jobs {
		id := s.submit(t)
		m, err := pulls.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		msg, _, err := c.open(m)
		if err != nil {
			t.Fatal(err)
		}
		written, err := c.pickUp(t.Context(), msg, msg, 0)
		if err != nil {
			t.Fatal(err)
		}
		var touched sync.WaitGroup
		touched.Go(func() {
			const touches = 20
			for range touches {
				next, err := s.q.move(t.Context(), c.at, written, job.Touch, nil)
				if err != nil {
					return // it was given back
				}
				written = next
			}
		})
		c.giveBackUnanswered(t.Context(), m)
		touched.Wait()
		if got := s.status(t, id); got.Status != job.InQueue || got.Lost != 0 {
			t.Fatalf("got %s, %d lost, want the job given back", got.Status, got.Lost)
		}
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
