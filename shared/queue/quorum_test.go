package queue

import (
	"testing"
	"time"

	"flightline/streams"
)

func TestQuorum(t *testing.T) {
	here, late, away := replica{Active: time.Second}, replica{Active: peerSilence + 1}, replica{Offline: true}
	for name, tc := range map[string]struct {
		replicas []replica
		want     bool
	}{
		"no replicas":         {nil, true},
		"all are there":       {[]replica{here, here}, true},
		"one is silent":       {[]replica{here, late}, true},
		"one is away":         {[]replica{away, here}, true},
		"both are silent":     {[]replica{late, late}, false},
		"both are away":       {[]replica{away, away}, false},
		"two of four of five": {[]replica{here, here, late, away}, true},
		"one of four of five": {[]replica{here, late, late, away}, false},
	} {
		if got := (cluster{tc.replicas}).quorum(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// A leader that was left alone still answers; nobody may take that for service.
func TestALeaderWithoutItsReplicasIsNoService(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := newTrio(t)
	eventually(t, "JetStream serves", func() bool { return c.q.service.age() > 0 })
	leader := c.StreamLeader(streams.Records(0))
	for node := range 3 {
		if node != leader {
			c.StopNode(node)
		}
	}
	eventually(t, "that is noticed", func() bool { return c.q.service.age() == 0 && c.q.probe(t.Context()) != nil })
}
