package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// A bound client has nowhere to wait: it took the name of the server for a barrier at the
// subject of the stream's own name.
func TestABoundClientWaitsAtNoBarrier(t *testing.T) {
	t.Parallel()
	s := testenv.NewBarrierServer(t)
	if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bus.CallTimeout)
	defer cancel()
	c := bus.Bind(s.NC)
	if seq, err := c.Publish(ctx, "S", &nats.Msg{Subject: "s.1", Header: nats.Header{}}, 0); seq != 1 || err != nil || c.HasBarrier() {
		t.Errorf("got %d, %v, barrier %v; want 1 and none", seq, err, c.HasBarrier())
	}
}

// A process may come to a server before the barrier beside it is served. What it writes
// then is not answered before it is on the disk.
func TestNoWriteIsAnsweredBeforeTheBarrierIsServed(t *testing.T) {
	t.Parallel()
	s := testenv.NewBarrierServer(t)
	if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	c, err := bus.NewClient(t.Context(), s.NC, bus.ClientConfig{ClockStream: "S", DurablePrefix: "durable."})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(ctx context.Context, subject string) error {
		_, err := c.Publish(ctx, "S", &nats.Msg{Subject: subject, Header: nats.Header{}}, 0)
		return err
	}
	early, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := publish(early, "s.1"); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("before: got %v, want ErrUnavailable", err)
	}
	waits := make(chan string, 1)
	s.ServeBarrier(t, "durable.", func(_ context.Context, stream string) error {
		if stream == "S" {
			waits <- stream
		}
		return nil
	})
	s.WaitForBarrier(t, "durable.")
	if err := publish(t.Context(), "s.2"); err != nil {
		t.Errorf("after: got %v", err)
	}
	if got := <-waits; got != "S" {
		t.Errorf("got a wait for %q, want S", got)
	}
}
