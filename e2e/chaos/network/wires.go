package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Wires join the nodes of a cluster by two relays for each pair. Each node has
// one more relay, its door: a client that uses it is cut off from the node
// together with the other nodes.
type Wires struct {
	doors []*Relay
	links [][]*Relay // links[i][j] is where node i dials node j; nil for itself
}

// NewWires joins nodes that listen for clients and for routes at these
// addresses. It needs WireCount free addresses.
func NewWires(clients, routes, free []string) (*Wires, error) {
	w := &Wires{}
	next := func(upstream string) (*Relay, error) {
		r, err := NewRelay(free[0], upstream)
		free = free[1:]
		return r, err
	}
	for i := range clients {
		door, err := next(clients[i])
		if err != nil {
			w.Close()
			return nil, err
		}
		w.doors, w.links = append(w.doors, door), append(w.links, make([]*Relay, len(routes)))
		for j := range routes {
			if i == j {
				continue
			}
			if w.links[i][j], err = next(routes[j]); err != nil {
				w.Close()
				return nil, err
			}
		}
	}
	return w, nil
}

// WireCount is the number of addresses that NewWires needs.
func WireCount(nodes int) int { return nodes * nodes }

// Close closes all relays.
func (w *Wires) Close() {
	for i, door := range w.doors {
		door.Close()
		for _, r := range w.links[i] {
			if r != nil {
				r.Close()
			}
		}
	}
}

// Between returns the relays that join two nodes.
func (w *Wires) Between(i, j int) []*Relay { return []*Relay{w.links[i][j], w.links[j][i]} }

// Around returns the relays of node i: those to all other nodes, and its door.
func (w *Wires) Around(i int) []*Relay {
	all := []*Relay{w.doors[i]}
	for j := range w.doors {
		if j != i {
			all = append(all, w.Between(i, j)...)
		}
	}
	return all
}

// URLs returns the doors as addresses of NATS, separated by commas.
func (w *Wires) URLs() string {
	var urls []string
	for _, d := range w.doors {
		urls = append(urls, "nats://"+d.Address)
	}
	return strings.Join(urls, ",")
}

// Node is one node of a cluster whose routes go through Wires.
type Node struct {
	Name string // of the server; its configuration is Name.conf
	// Route is the address on which it listens for the other nodes.
	Route          string
	User, Password string // of clients and of routes
	// Extra is more text for its configuration, "" for none.
	Extra string
}

// Configure writes the configuration of node i to a file in dir. The node
// advertises no address: all traffic goes through the relays.
func (w *Wires) Configure(dir string, i int, n Node) (path string, err error) {
	var routes []string
	for _, r := range w.links[i] {
		if r != nil {
			routes = append(routes, fmt.Sprintf("nats-route://%s:%s@%s", n.User, n.Password, r.Address))
		}
	}
	text := fmt.Sprintf(`server_name: %s
authorization { user: %s, password: %q }
cluster {
  name: chaos
  listen: %q
  advertise: "127.0.0.1:1"
  no_advertise: true
  authorization { user: %s, password: %q }
  routes: [%s]
}
%s`, n.Name, n.User, n.Password, n.Route, n.User, n.Password, strings.Join(routes, ", "), n.Extra)
	path = filepath.Join(dir, n.Name+".conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("configure %s: %w", n.Name, err)
	}
	return path, nil
}
