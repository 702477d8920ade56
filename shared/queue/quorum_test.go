package queue

import (
	"math"
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
		if got := (cluster{Replicas: tc.replicas}).quorum(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestHowLongALeaderHasHeardNoMajority(t *testing.T) {
	after := func(seconds int) replica { return replica{Active: time.Duration(seconds) * time.Second} }
	for name, tc := range map[string]struct {
		replicas []replica
		want     time.Duration
	}{
		"alone":                 {nil, 0},
		"the better one counts": {[]replica{after(9), after(2)}, 2 * time.Second},
		"the second of four":    {[]replica{after(9), after(3), after(1), after(7)}, 3 * time.Second},
		"one is offline":        {[]replica{{Offline: true}, after(4)}, 4 * time.Second},
		"all are":               {[]replica{{Offline: true}, {Offline: true}}, math.MaxInt64},
	} {
		if got := (cluster{Replicas: tc.replicas}).silence(); got != tc.want {
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
	eventually(t, "that is noticed", func() bool {
		_, err := c.q.probe(t.Context())
		return c.q.service.age() == 0 && err != nil
	})
}
