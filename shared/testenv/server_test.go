package testenv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
)

func TestConnectionsWorkAgainAfterARestartAndDataIsKept(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *testenv.Server{"NewServer": testenv.NewServer, "NewBarrierServer": testenv.NewBarrierServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			other := b.Connect(t)
			createStream(t, b.JS, 1)
			publish(t, b.JS)

			back, otherBack := b.NC.StatusChanged(nats.CONNECTED), other.StatusChanged(nats.CONNECTED)
			b.Stop()
			b.Stop()
			b.Start()
			b.Start()
			<-back
			<-otherBack
			publish(t, b.JS)
			if err := other.Flush(); err != nil {
				t.Errorf("the other connection: %v", err)
			}
			if got := messages(t, b.JS); got != 2 {
				t.Errorf("got %d messages, want 2", got)
			}
		})
	}
}

func TestEachBusIsItsOwn(t *testing.T) {
	one, other := testenv.NewServer(t), testenv.NewServer(t)
	createStream(t, one.JS, 1)
	if _, err := other.JS.Stream(t.Context(), "S"); err == nil {
		t.Error("got the stream of another bus")
	}
}

func TestAReplicatedStreamSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	c := testenv.NewCluster(t)
	createStream(t, c.JS, 3)
	publish(t, c.JS)

	leader := c.StreamLeader("S")
	c.StopNode(leader)
	publish(t, c.JS)
	if got := c.StreamLeader("S"); got == leader {
		t.Errorf("node %d leads the stream, but it is stopped", got)
	}
	c.StartNode(leader)
	publish(t, c.JS)
	if got := messages(t, c.JS); got < 3 {
		t.Errorf("got %d messages, want 3 or, as a publish may be repeated, more", got)
	}
}

func TestAClusterComesBackFromAFullStop(t *testing.T) {
	t.Parallel()
	c := testenv.NewCluster(t)
	createStream(t, c.JS, 3)
	publish(t, c.JS)
	for i := range testenv.Nodes {
		c.StopNode(i)
	}
	for i := range testenv.Nodes {
		c.StartNode(i)
	}
	publish(t, c.JS)
	if got := messages(t, c.JS); got < 2 {
		t.Errorf("got %d messages, want 2 or, as a publish may be repeated, more", got)
	}
}

func createStream(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: replicas}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// publish tries until it is acknowledged: an election takes its time.
func publish(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(once, "s", nil)
		done()
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("publish: %v", err)
		}
	}
}

func messages(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}
