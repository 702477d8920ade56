package testenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
)

// Nodes is the number of servers in a Cluster, counted from 0.
const Nodes = 3

// Cluster is three servers over loopback and a connection to whichever of
// them runs. Streams survive the loss of one node if they have three
// replicas.
type Cluster struct {
	// NC is a connection over TCP that moves to another node when its own
	// stops.
	NC *nats.Conn
	// JS is JetStream over NC.
	JS jetstream.JetStream

	t     testing.TB
	nodes [Nodes]*node
}

// NewCluster starts three servers and returns when streams with three replicas
// can be made, which takes about 2 s.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	routes := FreePorts(t, Nodes) // each node has to know those of the others before any of them runs
	for i := range c.nodes {
		c.nodes[i] = &node{cfg: embedded.Config{
			Dir: folder(t, memory()), User: user, Password: password,
			ServerName: fmt.Sprintf("node%d", i),
			Cluster:    &embedded.Cluster{Name: "testenv", Listen: routes[i], Routes: routes},
		}}
		t.Cleanup(c.nodes[i].stop)
		c.nodes[i].start(t)
	}
	c.waitForPeers()
	c.NC = c.Connect(t)
	c.JS = newJetStream(t, c.NC)
	return c
}

// StopNode takes node i away. With two of three left the cluster goes on
// after electing new leaders, which takes up to some seconds.
func (c *Cluster) StopNode(i int) { c.nodes[i].stop() }

// StartNode brings node i back at its address with its data, and returns when
// the cluster counts on it again; its streams may still be catching up. With the other two
// stopped there is no leader to do so, and it returns at once.
func (c *Cluster) StartNode(i int) {
	c.t.Helper()
	c.nodes[i].start(c.t)
	c.waitForPeers()
}

// NodeName is the server name of node i.
func (c *Cluster) NodeName(i int) string { return c.nodes[i].cfg.ServerName }

// StreamLeader is the node that leads the stream. It waits for one while the
// nodes elect, and fails the test after 30 s without any.
func (c *Cluster) StreamLeader(stream string) int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startWithin)
	defer cancel()
	for {
		for i, n := range c.nodes {
			if srv := n.running(); srv != nil && srv.LeadsStream(stream) {
				return i
			}
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			c.t.Fatalf("stream %s has no leader", stream)
		}
	}
}

// Connect opens one more connection, closed at the end of t's test.
func (c *Cluster) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	return Connect(t, c.Config())
}

// Config is what a part under test needs to connect by itself: the addresses
// of all nodes.
func (c *Cluster) Config() bus.Config {
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, "nats://"+n.cfg.Listen)
	}
	return bus.Config{URL: strings.Join(urls, ","), User: user, Password: password, Name: c.t.Name()}
}

// waitForPeers returns when every running node has a leader and the leader
// counts on every running node. The first alone is not enough: a leader that
// has not heard from the others yet refuses to place replicas on them.
func (c *Cluster) waitForPeers() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startWithin)
	defer cancel()
	var names []string
	var running []*embedded.Server
	for _, n := range c.nodes {
		if srv := n.running(); srv != nil {
			names, running = append(names, n.cfg.ServerName), append(running, srv)
		}
	}
	if len(running) <= Nodes/2 {
		return // no majority, so nobody leads
	}
	for i, srv := range running {
		if err := srv.WaitForLeader(ctx); err != nil {
			c.t.Fatalf("%s: %v", names[i], err)
		}
	}
	for !c.leaderCountsOn(names) {
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			c.t.Fatalf("no leader counts on all of %v", names)
		}
	}
}

func (c *Cluster) leaderCountsOn(names []string) bool {
	for _, n := range c.nodes {
		srv := n.running()
		if srv == nil {
			continue
		}
		peers := srv.Peers() // none unless this is the leader
		missing := func(name string) bool { return !slices.Contains(peers, name) }
		if !slices.ContainsFunc(names, missing) {
			return true
		}
	}
	return false
}
