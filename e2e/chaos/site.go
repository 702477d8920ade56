package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/e2e/chaos/network"
	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/streams"
)

// readyTimeout bounds the start of the bus; a cluster has to elect first.
const readyTimeout = 60 * time.Second

// site is a whole installation in processes of its own.
type site struct {
	dir       string // ledgers, logs and stores; removed by close
	ledger    *ledger
	nodes     []*node
	wires     *network.Wires // between the nodes, where they can be cut
	apis      []string       // addresses
	endpoints []endpoint.Endpoint
	tally     *tally
	observer  *observer
	// recording: there are recorders, whose work is to be audited.
	recording bool
	// expiredLeft counts queue messages that outlive their job.
	expiredLeft int

	nc *nats.Conn
	js jetstream.JetStream

	children sync.WaitGroup
	mu       sync.Mutex
	running  []*child
	faults   []string // what should not have happened, apart from what the ledger says
}

// node is a NATS node, which may be away.
type node struct {
	cfg   roleConfig
	child *child
	lives int
}

// newSite starts nodes NATS nodes and makes the endpoints; api instances and
// workers are the caller's to start.
func newSite(ctx context.Context, nodes int, endpoints ...endpoint.Endpoint) (*site, error) {
	return openSite(ctx, (*site).layBus, nodes, endpoints...)
}

// openSite is newSite with a way to lay out the bus.
func openSite(ctx context.Context, layOut func(*site, int) error, nodes int, endpoints ...endpoint.Endpoint) (*site, error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	s := &site{dir: dir, endpoints: endpoints, tally: newTally()}
	if s.ledger, err = openLedger(dir, "harness"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := errors.Join(layOut(s, nodes), s.startNodes()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.furnish(ctx, nodes); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the bus: %w", err), s.close())
	}
	return s, nil
}

// furnish makes the streams, the endpoints and the key, and begins to observe.
func (s *site) furnish(ctx context.Context, nodes int) error {
	shape := streams.Config{Replicas: nodes}
	_, err := persist(ctx, func() (any, error) {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := streams.Apply(within, s.js, shape); err != nil {
			return nil, err
		}
		for _, e := range s.endpoints {
			if err := streams.ApplyEndpoint(within, s.js, shape, e); err != nil {
				return nil, err
			}
		}
		return nil, nil //nolint:nilnil // persist wants a value
	})
	if err != nil {
		return err
	}
	reg, err := registry.New(ctx, s.js, nil)
	if err != nil {
		return err
	}
	if _, err := reg.Keys.Put(ctx, apiKey, registry.KeySpec{Scopes: registry.AllScopes()}); err != nil {
		return err
	}
	// The table itself takes a lease that is shorter than the API allows.
	table, err := registry.OpenTable[endpoint.Endpoint](ctx, s.js, streams.BucketEndpoints)
	if err != nil {
		return err
	}
	for _, e := range s.endpoints {
		if _, err := table.Create(ctx, e.ID, e); err != nil {
			return err
		}
	}
	s.observer, err = observe(ctx, s.busURL())
	return err
}

// shortLease makes takeovers quick. It is shorter than the API allows, and
// than a call may take while a cluster elects: a cluster gets what the API
// allows at least.
const shortLease = 2 * time.Second

// newEndpoint lets nothing expire by itself.
func newEndpoint(id string, lease time.Duration) endpoint.Endpoint {
	e := endpoint.Endpoint{ID: id, Created: time.Now(), Version: 1, TTL: time.Hour, ExecutionTimeout: 10 * lease, Retention: time.Hour}
	e, _ = e.Complete() // within its bounds
	e.Lease, e.SyncRetention = lease, time.Hour
	return e
}

// start spawns a child that close ends.
func (s *site) start(role string, cfg roleConfig) (*child, error) {
	c, err := s.spawn(role, cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, c)
	return c, nil
}

// fault notes what should not have happened.
func (s *site) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// halt ends all children and the observer; the ledgers stay.
func (s *site) halt() {
	if s.observer != nil {
		s.observer.close()
		s.observer = nil
	}
	if s.nc != nil {
		s.nc.Close()
	}
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	for _, c := range running {
		c.kill()
	}
	s.children.Wait()
	if s.wires != nil {
		s.wires.Close()
		s.wires = nil
	}
}

// close ends everything and removes the folder.
func (s *site) close() error {
	s.halt()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
