package queue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// A consumer that closes under load leaves no job that waits for its lease. The
// lease is an hour here: what was left behind would stay for the test's time.
// Where the consumer is led by another node than the consumer's, the end of a
// subscription and a delivery may pass each other between the nodes.
func TestClosingUnderLoadReleasesWhatWasDelivered(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.e.Lease = time.Hour
	if err := c.q.CreateEndpoint(t.Context(), c.e); err != nil {
		t.Fatal(err)
	}
	room := make(chan struct{}, 300) // jobs that wait or run
	load, enough := context.WithCancel(t.Context())
	defer enough()
	var accepted, ended atomic.Int64
	var submitting sync.WaitGroup
	for range 8 {
		submitting.Go(func() {
			for load.Err() == nil {
				select {
				case room <- struct{}{}:
				case <-load.Done():
					return
				}
				_, err := c.q.Submit(context.WithoutCancel(load), c.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
				switch {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, bus.ErrUnavailable):
					<-room
				default:
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		w := c.work(t, 64, func() { ended.Add(1); <-room })
		before := ended.Load()
		testenv.Eventually(t, "the worker is busy", func() bool { return ended.Load() > before+200 })
		w.close()
	}
	enough()
	submitting.Wait()
	last := c.work(t, 64, func() { ended.Add(1); <-room })
	defer last.close()
	testenv.Eventually(t, "every accepted job has run", func() bool { return ended.Load() == accepted.Load() })
}

// closing is a worker with a connection of its own, whose jobs take no time.
type closing struct {
	consumer   *Consumer
	slots, bus sync.WaitGroup
	stop       context.CancelFunc
	nc         *nats.Conn
}

func (c *trio) work(t *testing.T, slots int, ended func()) *closing {
	t.Helper()
	nc := c.Connect(t)
	q, err := New(t.Context(), nc, Config{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &closing{stop: stop, nc: nc}
	w.bus.Go(func() { _ = q.Run(ctx) })
	if w.consumer, err = q.Consume(ctx, c.e, "w", slots); err != nil {
		t.Fatal(err)
	}
	for range slots {
		w.slots.Go(func() {
			for {
				l, err := w.consumer.Next(ctx)
				if err != nil {
					return
				}
				for _, err = l.Complete(ctx, nil); err != nil; _, err = l.Complete(ctx, nil) {
					if !errors.Is(err, bus.ErrUnavailable) {
						t.Error(err)
						return
					}
				}
				ended()
			}
		})
	}
	return w
}

// close ends it as a worker does that was asked to stop.
func (w *closing) close() {
	w.consumer.Close()
	w.slots.Wait()
	w.consumer.Wait()
	w.stop()
	w.bus.Wait()
	w.nc.Close()
}
