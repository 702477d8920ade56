package queue

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/streams"
)

// The barrier is found after the first completions were read, and then the
// server is started anew: what is done leaves the queue all the same.
func TestWhatIsDoneLeavesThoughTheBarrierWasFoundLate(t *testing.T) {
	s := newSite(t)
	from := s.completions(t)
	s.ended(t, `{}`)
	nextCompletion(t, from).Done(t.Context())
	s.eventuallyLeft(t, streams.Webhooks, 0)
	s.serveBarrier(t, func(context.Context, string) error { return nil })
	eventually(t, "the barrier is found", func() bool { return s.q.barrier.Load() != nil })
	server := s.q.nc.ConnectedServerId()
	s.Stop()
	s.Start()
	eventually(t, "the server is back", func() bool {
		_, err := s.JS.Stream(t.Context(), streams.Webhooks)
		return err == nil && s.q.nc.IsConnected() && s.q.nc.ConnectedServerId() != server
	})
	s.barrierIsServed(t)
	id := s.ended(t, `{}`)
	if c := nextCompletion(t, from); c.Job.ID != id || c.server != s.q.nc.ConnectedServerId() {
		t.Errorf("got %s of server %s, want %s of %s", c.Job.ID, c.server, id, s.q.nc.ConnectedServerId())
	} else {
		c.Done(t.Context())
	}
	s.eventuallyLeft(t, streams.Webhooks, 0)
}

// The client gives up after some answers of the server: then we ask anew.
func TestCompletionsAreReadOnAfterARefusal(t *testing.T) {
	s := newSite(t)
	pulls := make(chan *nats.Msg, 100)
	sub, err := s.NC.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT."+streams.Webhooks+".>", pulls)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
	from := s.completions(t)
	pull := <-pulls
	if err := s.NC.PublishMsg(&nats.Msg{Subject: pull.Reply, Header: nats.Header{"Status": {"400"}, "Description": {"Bad Request"}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another request", func() bool {
		select {
		case again := <-pulls:
			return again.Reply != pull.Reply
		default:
			return false
		}
	})
	id := s.ended(t, `{}`)
	if c := nextCompletion(t, from); c.Job.ID != id {
		t.Errorf("got %s, want %s", c.Job.ID, id)
	}
}

// What is said of a completion of a server that was started anew would be said
// of another one.
func TestNothingIsSaidOfACompletionOfAServerBefore(t *testing.T) {
	s := newSite(t)
	s.q = s.queue(t, Config{Durable: func(context.Context, string) error { return nil }})
	s.ended(t, `{}`)
	c := nextCompletion(t, s.completions(t))
	said := make(chan *nats.Msg, 100)
	sub, err := s.NC.ChanSubscribe("$JS.ACK."+streams.Webhooks+".>", said)
	if err == nil {
		err = s.NC.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
	now := c.server
	c.server = "another"
	c.Extend()
	c.Later(0)
	c.Later(time.Hour)
	if err := s.q.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(said) > 0 {
		t.Fatalf("got %s, want nothing", (<-said).Data)
	}
	c.server = now
	c.Extend()
	eventually(t, "the server is told", func() bool { return len(said) == 1 })
}

func TestWhenTheQueueForgetsACompletion(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for ttl, want := range map[string]time.Duration{"": streams.WebhooksAge, "90s": 90 * time.Second, "never": streams.WebhooksAge} {
		if got := endOf(since, ttl); !got.Equal(since.Add(want)) {
			t.Errorf("ttl %q: got %s, want %s later", ttl, got, want)
		}
	}
}
