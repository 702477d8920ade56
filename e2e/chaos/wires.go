package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// wires are what joins the nodes of a cluster, two relays for each pair, and
// leads to them: each node has a door beside its own address, for those who
// are cut off from it together with the other nodes.
type wires struct {
	doors []*relay
	links [][]*relay // links[i][j] is where node i dials node j; nil for itself
}

// newWires leads to nodes at the addresses clients and routes, over as many
// free addresses as it needs, see wireCount.
func newWires(clients, routes, free []string) (*wires, error) {
	w := &wires{}
	next := func(upstream string) (*relay, error) {
		r, err := newRelay(free[0], upstream)
		free = free[1:]
		return r, err
	}
	for i := range clients {
		door, err := next(clients[i])
		if err != nil {
			w.close()
			return nil, err
		}
		w.doors, w.links = append(w.doors, door), append(w.links, make([]*relay, len(routes)))
		for j := range routes {
			if i == j {
				continue
			}
			if w.links[i][j], err = next(routes[j]); err != nil {
				w.close()
				return nil, err
			}
		}
	}
	return w, nil
}

// wireCount is how many addresses the wires of so many nodes need.
func wireCount(nodes int) int { return nodes * nodes }

func (w *wires) close() {
	for i, door := range w.doors {
		door.close()
		for _, r := range w.links[i] {
			if r != nil {
				r.close()
			}
		}
	}
}

// between are the wires that join two nodes.
func (w *wires) between(i, j int) []*relay { return []*relay{w.links[i][j], w.links[j][i]} }

// around are the wires of node i: those to all other nodes, and its door.
func (w *wires) around(i int) []*relay {
	all := []*relay{w.doors[i]}
	for j := range w.doors {
		if j != i {
			all = append(all, w.between(i, j)...)
		}
	}
	return all
}

// urls are the doors, for clients.
func (w *wires) urls() string {
	var urls []string
	for _, d := range w.doors {
		urls = append(urls, "nats://"+d.address)
	}
	return strings.Join(urls, ",")
}

// configure writes the configuration of node i of a real cluster. It tells
// nobody its own address, nor clients the others': all go by the wires.
func (w *wires) configure(dir string, i int, n roleConfig) (path string, err error) {
	var routes []string
	for _, r := range w.links[i] {
		if r != nil {
			routes = append(routes, fmt.Sprintf("nats-route://%s:%s@%s", busUser, busPassword, r.address))
		}
	}
	text := fmt.Sprintf(`server_name: %s
authorization { user: %s, password: %q }
jetstream { max_mem: 64MB, max_file: 8GB }
cluster {
  name: chaos
  listen: %q
  advertise: "127.0.0.1:1"
  no_advertise: true
  authorization { user: %s, password: %q }
  routes: [%s]
}
`, n.Server, busUser, busPassword, n.Route, busUser, busPassword, strings.Join(routes, ", "))
	path = filepath.Join(dir, n.Server+".conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("configure %s: %w", n.Server, err)
	}
	return path, nil
}
