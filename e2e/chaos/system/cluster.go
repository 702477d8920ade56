package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"flightline/e2e/chaos/network"
	"flightline/shared/testenv/port"
)

// cluster is three NATS servers and two `flightline serve all`.
type cluster struct {
	wires   *network.Wires
	configs []string   // of the NATS servers
	nodes   []*process // NATS servers
	servers []*process // serve all
	listen  []string   // of servers
	near    string     // the nodes' own addresses, which no cut separates
}

const (
	clusterNodes   = 3
	clusterServers = 2
	natsUser       = "chaos"
	natsPassword   = "chaos-system"
)

// layOut chooses addresses and writes the configurations.
func (w *world) layOut() error {
	addresses, err := port.Free(2*clusterNodes + clusterServers + network.WireCount(clusterNodes))
	if err != nil {
		return err
	}
	take := func(n int) (some []string) {
		some, addresses = addresses[:n], addresses[n:]
		return some
	}
	clients, routes := take(clusterNodes), take(clusterNodes)
	c := &cluster{listen: take(clusterServers), near: "nats://" + strings.Join(clients, ",nats://")}
	if c.wires, err = network.NewWires(clients, routes, addresses); err != nil {
		return err
	}
	w.cluster = c
	for i := range clusterNodes {
		name := fmt.Sprintf("node%d", i)
		path, err := c.wires.Configure(w.dir, i, network.Node{
			Name: name, Route: routes[i], User: natsUser, Password: natsPassword,
			Extra: fmt.Sprintf("listen: %q\njetstream { store_dir: %q, max_mem: 64MB, max_file: 8GB }\n", clients[i], filepath.Join(w.dir, name)),
		})
		if err != nil {
			return err
		}
		c.configs = append(c.configs, path)
	}
	c.nodes, c.servers = make([]*process, clusterNodes), make([]*process, clusterServers)
	w.callers.urls = nil
	for _, address := range c.listen {
		w.callers.urls = append(w.callers.urls, "http://"+address)
	}
	w.listen = c.listen[0]
	return nil
}

func (w *world) startNode(i int) (err error) {
	w.cluster.nodes[i], err = w.start(fmt.Sprintf("node%d", i), nil, w.cfg.NATS, "-c", w.cluster.configs[i])
	return err
}

// busEnv are the settings by which a process reaches the nodes. Two of three
// are near: they stay with a node that is cut off from the others.
func (c *cluster) busEnv(i int) []string {
	url := c.near
	if i%3 == 2 {
		url = c.wires.URLs()
	}
	return []string{"NATS_URL=" + url, "FLIGHTLINE_NATS_USER=" + natsUser, "FLIGHTLINE_NATS_PASSWORD=" + natsPassword}
}

func (w *world) startServer(i int) (err error) {
	c := w.cluster
	env := append(c.busEnv(2*i), "FLIGHTLINE_BOOTSTRAP_KEY="+apiKey)
	c.servers[i], err = w.start(fmt.Sprintf("serve%d", i), env, w.program, "serve", "all", "--replicas", "3",
		"--listen", c.listen[i], "--metrics-listen", "off", "--log-level", "warn", "--limits", "off",
		"--fleet-folder", filepath.Join(w.dir, fmt.Sprintf("fleet%d", i)))
	return err
}

// serverReady waits until a server is ready.
func (w *world) serverReady(ctx context.Context, i int) error {
	return until(ctx, readyTimeout, func() error {
		select {
		case <-w.cluster.servers[i].gone:
			return fmt.Errorf("%s ended: %s", w.cluster.servers[i].name, w.cluster.servers[i].lastLine())
		default:
			return w.callers.readyzOf(ctx, w.callers.urls[i])
		}
	})
}

// startCluster starts the nodes and the servers, and makes the endpoint.
// together starts all servers at once.
func (w *world) startCluster(ctx context.Context, together bool) error {
	if err := w.layOut(); err != nil { //nolint:contextcheck // relays end with the world, not with ctx
		return err
	}
	for i := range clusterNodes {
		if err := w.startNode(i); err != nil {
			return err
		}
	}
	began := time.Now()
	for i := range clusterServers {
		if err := w.startServer(i); err != nil {
			return err
		}
		if together {
			continue
		}
		if err := w.serverReady(ctx, i); err != nil {
			return err
		}
	}
	for i := range clusterServers {
		if err := w.serverReady(ctx, i); err != nil {
			return err
		}
	}
	w.note("servers ready after %s", time.Since(began).Round(100*time.Millisecond))
	return w.endpoint(ctx, "--max-lost-workers", "100")
}

// clusterWorkers starts workers, two of three near.
func (w *world) clusterWorkers(ctx context.Context, n, slots int) (fleet []*process, err error) {
	for i := range n {
		w.workerEnv = w.cluster.busEnv(i)
		p, err := w.beginWorker(fmt.Sprintf("w0-%d", i), slots)
		if err != nil {
			return nil, err
		}
		fleet = append(fleet, p)
	}
	for _, p := range fleet {
		err = errors.Join(err, p.says(ctx, "flightline worker ready"))
	}
	return fleet, err
}

// holdRoutes delays all that the nodes send each other by up to d, far less than
// they need to take one another for dead.
func (c *cluster) holdRoutes(ctx context.Context, d time.Duration) {
	for i := range clusterNodes {
		for j := range i {
			for _, r := range c.wires.Between(i, j) {
				r.Cut()
				defer r.Mend()
			}
		}
	}
	wait(ctx, d)
}

// cut separates a node from the others and from those who are not near, for so
// long, and waits until the servers are ready again.
func (w *world) cut(ctx context.Context, i int, d time.Duration) {
	w.count(fmt.Sprintf("node cut off for %s", d))
	relays := w.cluster.wires.Around(i)
	for _, r := range relays {
		r.Cut()
	}
	wait(ctx, d)
	for _, r := range relays {
		r.Mend()
	}
	w.book.calmed()
}
