package streams_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
	"flightline/streams"
)

// Who forgot to say that there are three copies takes none away, and makes
// nothing beside them that has one.
func TestApplyTakesNoCopiesAway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	e := endpointOf(t, "ep")
	three := streams.Config{Replicas: 3}
	if err := streams.ApplyEndpoint(t.Context(), c.JS, three, e); err != nil {
		t.Fatal(err)
	}
	events := jetstream.StreamConfig{Name: streams.Events, Subjects: []string{"events.>"}, Replicas: 3}
	if _, err := c.JS.CreateStream(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if err := streams.Apply(t.Context(), c.JS, streams.Config{}); !errors.Is(err, streams.ErrReplicas) {
		t.Errorf("got %v, want ErrReplicas", err)
	}
	if err := streams.ApplyEndpoint(t.Context(), c.JS, streams.Config{Replicas: 1}, e); err != nil {
		t.Errorf("an endpoint: got %v, want that its queue keeps its copies", err)
	}
	for _, name := range []string{streams.Events, streams.Jobs("ep")} {
		if got := stream(t, c.JS, name).CachedInfo().Config.Replicas; got != 3 {
			t.Errorf("%s: got %d copies, want still 3", name, got)
		}
	}
	if all := allStreams(t, c.JS); len(all) != 2 {
		t.Errorf("got %v, want nothing made", all)
	}
	if err := streams.ApplyEndpoint(t.Context(), c.JS, three, e); err != nil {
		t.Errorf("with three again: %v", err)
	}
}

// A single server and a cluster refuse bytes that they cannot reserve with errors of their own.
func TestBytesThatCannotBeReservedNameTheSetting(t *testing.T) {
	t.Parallel()
	servers := map[int]jetstream.JetStream{1: testenv.NewServer(t).JS}
	if !testing.Short() {
		servers[3] = testenv.NewCluster(t).JS
	}
	for replicas, js := range servers {
		err := streams.Apply(t.Context(), js, streams.Config{Replicas: replicas, LogsMaxBytes: 1 << 61})
		if err == nil || !strings.Contains(err.Error(), "--logs-max-bytes a smaller number") {
			t.Errorf("%d servers: got %v, want the setting that is too large", replicas, err)
		}
	}
}
