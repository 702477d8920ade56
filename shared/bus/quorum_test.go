package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// A leader that was left alone still answers, which is no service.
func TestALeaderWithoutItsReplicasIsNoService(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	const stream = "CLOCK"
	c := testenv.NewCluster(t)
	if _, err := c.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Replicas: testenv.Nodes}); err != nil {
		t.Fatal(err)
	}
	client, err := bus.NewClient(t.Context(), c.NC, bus.ClientConfig{ClockStream: stream, DurablePrefix: "durable."})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, client.Run)
	testenv.Eventually(t, "JetStream serves", func() bool { return client.Availability().Age() > 0 })
	leader := c.StreamLeader(stream)
	for node := range testenv.Nodes {
		if node != leader {
			c.StopNode(node)
		}
	}
	testenv.Eventually(t, "that is noticed", func() bool {
		return client.Probe(t.Context()) != nil && client.Availability().Age() == 0
	})
}
