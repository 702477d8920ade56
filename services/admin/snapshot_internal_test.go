package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
)

// The answer to the last chunk may take half an hour, but not if it can no
// longer come.
func TestTheEndOfACopyWaitsForNoLostAnswer(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	nc := b.Connect(t)
	asked := testenv.Subscribe(t, nc, "somebody.silent")
	ended := make(chan error, 1)
	go func() { ended <- endCopy(t.Context(), nc, "somebody.silent") }()
	if _, err := asked.NextMsg(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	select {
	case err := <-ended:
		if !errors.Is(err, errStalled) {
			t.Errorf("got %v, want errStalled", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on")
	}
}

// NATS may choose a server that is away to make a stream: nothing answers then.
func TestARestoreThatNoServerBeginsSaysSo(t *testing.T) {
	t.Parallel()
	nc := testenv.NewServer(t).Connect(t)
	testenv.Subscribe(t, nc, "somebody.silent")
	_, err := announce(t.Context(), 50*time.Millisecond, nc, "somebody.silent", described{})
	if err == nil || !strings.Contains(err.Error(), "all of a cluster have to run") {
		t.Errorf("got %v, want what has to be done", err)
	}
}

// The server takes away by itself what is not durable and has no reader, also
// between the list of a restored stream's consumers and their removal.
func TestAConsumerThatIsGoneAlreadyCountsAsDropped(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	s, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := drop(t.Context(), s, c.CachedInfo().Name); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
}
