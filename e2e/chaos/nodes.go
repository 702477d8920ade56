package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/e2e/chaos/network"
	"flightline/shared/bus"
)

// layBus lays out nodes that know each other's addresses.
func (s *site) layBus(nodes int) error {
	ports, err := network.FreeAddresses(2*nodes + 2)
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
	free, err := network.FreeAddresses(network.WireCount(nodes))
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
