package queue

import (
	"testing"

	"flightline/shared/testenv"
)

// A node that has lost the others keeps its connections, and answers nothing
// of use: the process has to leave it by itself.
func TestANodeWithoutTheOthersIsLeft(t *testing.T) {
	t.Parallel()
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
	testenv.Eventually(t, "the process looks for another node", func() bool { return c.q.nc.Stats().Reconnects > before })
}
