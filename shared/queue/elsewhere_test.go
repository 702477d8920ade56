package queue

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
)

// A process behind a node that was cut off leaves it within half of the least
// lease, wherever the cut falls between its probes, and waits longer for the next.
func TestStranded(t *testing.T) {
	cut := time.Now()
	cutOff := func(since time.Duration, nodes int, status nats.Status) bool {
		return newAttendance(cut).stranded(cut.Add(since), nodes, status)
	}
	tests := map[string]struct {
		got, want bool
	}{
		"all is well":                     {cutOff(0, 3, nats.CONNECTED), false},
		"one probe may be an election's":  {cutOff(probeTimeout+probeInterval, 3, nats.CONNECTED), false},
		"a node without the others":       {cutOff(maxSilence+silenceJitter, 3, nats.CONNECTED), true},
		"there is no other node":          {cutOff(time.Hour, 1, nats.CONNECTED), false},
		"it is looking for a node anyway": {cutOff(time.Hour, 3, nats.RECONNECTING), false},
	}
	for name, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %v, want %v", name, tt.got, tt.want)
		}
	}
	if worst := maxSilence + silenceJitter + max(probeTimeout, probeInterval); worst >= endpoint.MinLease/2 {
		t.Errorf("a node is left after %v, want less than half of the least lease, %v", worst, endpoint.MinLease)
	}
}

// An election sends nobody from node to node: patience doubles until one serves.
func TestPatienceWithTheNextNode(t *testing.T) {
	now := time.Now()
	a := newAttendance(now)
	for moves := range 10 {
		before := a.patience
		a.moved(now)
		if a.patience < min(2*before, maxSilenceBackoff) || a.patience > maxSilenceBackoff {
			t.Errorf("move %d: got patience %v after %v", moves, a.patience, before)
		}
	}
	a.served(now)
	if a.patience > maxSilence+silenceJitter {
		t.Errorf("served: got patience %v, want %v again", a.patience, maxSilence)
	}
}

// A node that has lost the others keeps its connections, and answers nothing
// of use: the process has to leave it by itself.
func TestANodeWithoutTheOthersIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := newTrio(t)
	connected := c.q.nc.ConnectedServerName()
	for i, name := range []string{"node0", "node1", "node2"} {
		if name != connected {
			c.StopNode(i)
		}
	}
	before := c.q.nc.Stats().Reconnects
	eventually(t, "the process looks for another node", func() bool { return c.q.nc.Stats().Reconnects > before })
}
