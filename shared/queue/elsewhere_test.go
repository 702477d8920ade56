package queue

import (
	"testing"

	"github.com/nats-io/nats.go"
)

func TestStranded(t *testing.T) {
	tests := map[string]struct {
		unanswered, nodes int
		status            nats.Status
		want              bool
	}{
		"all is well":                     {0, 3, nats.CONNECTED, false},
		"one probe may be an election's":  {1, 3, nats.CONNECTED, false},
		"a node without the others":       {strandedProbes, 3, nats.CONNECTED, true},
		"there is no other node":          {9, 1, nats.CONNECTED, false},
		"it is looking for a node anyway": {9, 3, nats.RECONNECTING, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := stranded(tt.unanswered, tt.nodes, tt.status); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
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
