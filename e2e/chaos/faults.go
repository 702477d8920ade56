package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/e2e/chaos/network"
	"flightline/shared/bus"
	"flightline/shared/testenv/port"
	"flightline/streams"
)

// The kinds of harm that are done to the bus.
const (
	nodeKill   = "nats killed"
	longOutage = "nats away for 2 leases"
	leaderKill = "nats leader killed"
	partition  = "nats leader cut off"
)

// injectFaults does harm to the bus until ctx ends.
func (s *site) injectFaults(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // chance, no secret
	for n := 0; wait(ctx, between(rng, 5*time.Second, 9*time.Second)); n++ {
		var err error
		if len(s.nodes) == 1 {
			err = s.killNode(rng, n)
		} else {
			err = s.killLeader(ctx, rng, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// killNode kills the only node and brings it back. It is not cut short: a node
// is always brought back.
func (s *site) killNode(rng *rand.Rand, n int) error {
	away, what := between(rng, 100*time.Millisecond, 1200*time.Millisecond), nodeKill
	if n%3 == 1 {
		away, what = 2*s.endpoints[0].Lease+500*time.Millisecond, longOutage
	}
	s.tally.kill(what)
	s.nodes[0].child.kill()
	<-time.After(away)
	return s.startNode(0)
}

// killLeader kills or suspends one node of three, the leader of some stream as a
// rule, and waits until all are together again.
func (s *site) killLeader(ctx context.Context, rng *rand.Rand, n int) error {
	victims := []string{streams.Records(0), streams.Jobs(s.endpoints[0].ID)}
	i, err := s.leader(ctx, victims[n%2])
	if err != nil {
		return nil //nolint:nilerr // no leader now: the next round finds one
	}
	if n%3 == 2 {
		s.tally.kill(partition)
		if err := suspend(s.nodes[i].child.cmd.Process); err != nil {
			return fmt.Errorf("suspend: %w", err)
		}
		<-time.After(between(rng, 5*time.Second, 8*time.Second))
		if err := resume(s.nodes[i].child.cmd.Process); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	} else {
		s.tally.kill(leaderKill)
		s.nodes[i].child.kill()
		<-time.After(between(rng, 500*time.Millisecond, 2500*time.Millisecond))
		if err := s.startNode(i); err != nil {
			return err
		}
	}
	s.together(ctx)
	return nil
}

// leader is the node that leads the stream.
func (s *site) leader(ctx context.Context, stream string) (int, error) {
	info, err := s.streamInfo(ctx, stream)
	if err != nil {
		return 0, err
	}
	for i, n := range s.nodes {
		if info.Cluster != nil && info.Cluster.Leader == n.cfg.Server {
			return i, nil
		}
	}
	return 0, fmt.Errorf("stream %s has no leader", stream)
}

func (s *site) streamInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := s.js.Stream(within, stream)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	return st.CachedInfo(), nil
}

// together returns when all replicas of all streams have caught up.
func (s *site) together(ctx context.Context) {
	names := []string{streams.Records(0), streams.Payloads(0)}
	for _, e := range s.endpoints {
		names = append(names, streams.Jobs(e.ID))
	}
	for _, name := range names {
		for !s.current(ctx, name) && wait(ctx, 200*time.Millisecond) {
			continue
		}
	}
}

func (s *site) current(ctx context.Context, stream string) bool {
	info, err := s.streamInfo(ctx, stream)
	if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
		return false
	}
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}

// layBus lays out nodes that know each other's addresses.
func (s *site) layBus(nodes int) error {
	ports, err := port.Free(2*nodes + 2)
	if err != nil {
		return err
	}
	s.apis, ports = ports[:2], ports[2:]
	routes := ports[nodes:]
	for i := range nodes {
		n := &node{cfg: roleConfig{
			Dir: filepath.Join(s.dir, fmt.Sprintf("store%d", i)), Listen: ports[i], Server: fmt.Sprintf("node%d", i),
		}}
		if nodes > 1 {
			n.cfg.Route, n.cfg.Routes = routes[i], routes
		}
		s.nodes = append(s.nodes, n)
	}
	return nil
}

// wireBus is layBus with wires between the nodes.
func (s *site) wireBus(nodes int) error {
	if err := s.layBus(nodes); err != nil {
		return err
	}
	free, err := port.Free(network.WireCount(nodes))
	if err != nil {
		return err
	}
	var clients, routes []string
	for _, n := range s.nodes {
		clients, routes = append(clients, n.cfg.Listen), append(routes, n.cfg.Route)
	}
	if s.wires, err = network.NewWires(clients, routes, free); err != nil {
		return err
	}
	for i, n := range s.nodes {
		if n.cfg.File, err = s.wires.Configure(s.dir, i, nodeOf(n.cfg)); err != nil {
			return err
		}
	}
	return nil
}

// nodeOf is a node of a cluster whose routes can be cut.
func nodeOf(cfg roleConfig) network.Node {
	const limits = "jetstream { max_mem: 64MB, max_file: 8GB }\n"
	return network.Node{Name: cfg.Server, Route: cfg.Route, User: busUser, Password: busPassword, Extra: limits}
}

// startNodes starts the nodes that were laid out and connects to them.
func (s *site) startNodes() (err error) {
	for i := range s.nodes {
		if err := s.startNode(i); err != nil {
			return err
		}
	}
	s.nc, err = bus.Connect(bus.Config{URL: s.busURL(), User: busUser, Password: busPassword, Name: "harness", Wait: true})
	if err != nil {
		return err
	}
	s.js, err = jetstream.New(s.nc)
	return err
}

// busURL is where the bus is to be found: by wires, if there are any.
func (s *site) busURL() string {
	if s.wires != nil {
		return s.wires.URLs()
	}
	return s.nearURL()
}

// nearURL are the nodes' own addresses, which no wire can be cut to.
func (s *site) nearURL() string {
	var urls []string
	for _, n := range s.nodes {
		urls = append(urls, "nats://"+n.cfg.Listen)
	}
	return strings.Join(urls, ",")
}

func (s *site) startNode(i int) error {
	n := s.nodes[i]
	n.lives++
	cfg := n.cfg
	cfg.Name = fmt.Sprintf("nats%d-%d", i, n.lives)
	c, err := s.start("nats", cfg)
	n.child = c
	return err
}
