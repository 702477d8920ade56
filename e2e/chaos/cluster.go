package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/e2e/chaos/network"
	"flightline/shared/endpoint"
)

// cluster is an experiment of its own: three NATS nodes under a steady load,
// each of which is killed, cut off and cut from one other in turn. What calls
// take and are told meanwhile is measured; the ledger is audited as ever.
type cluster struct {
	rate int           // jobs a second
	last time.Duration // of the load
	seed uint64
}

const (
	clusterNodes    = 3
	clusterEndpoint = "cluster"
	clusterSlots    = 48 // of each worker
	// harmEvery is the time from one harm to the next, as a rule; away is how
	// long a node is gone. An election and a lease fit in.
	harmEvery, away = 30 * time.Second, 12 * time.Second
)

// The harms, in the order in which each node meets them; calm is none.
const (
	calmly  = "no harm"
	killed  = "kill -9 of a node"
	cutOff  = "a node cut off"
	cutPair = "two nodes cut from each other"
)

// period is a time in which harm was done, its aftermath included.
type period struct {
	what        string
	from, until time.Time
}

// run is the experiment.
func (x cluster) run(ctx context.Context) (*clusterReport, error) {
	began := time.Now()
	e := newEndpoint(clusterEndpoint, endpoint.MinLease)
	s, err := openSite(ctx, (*site).wireBus, clusterNodes, e)
	if err != nil {
		return nil, err
	}
	if err := s.staff(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	l := &load{client: newClient(s.apis, s.ledger, s.fault), seed: x.seed}
	if err := s.apisReady(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	var harm []period
	g, within := errgroup.WithContext(ctx)
	stop, cancel := context.WithCancel(within)
	defer cancel()
	g.Go(func() error {
		harm, err = s.turns(stop, x.last)
		return err
	})
	l.run(within, x.rate, x.last)
	turmoil := time.Since(began)
	cancel()
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	calm := time.Now()
	stuck := s.quiet(ctx, quietWithin)
	quiet := time.Since(calm)
	d := newDriver(s, x.seed)
	for _, id := range l.jobs {
		d.jobs[id] = clusterEndpoint
	}
	d.lastLook(ctx)
	writes, _ := s.observer.history()
	r, err := s.audit(ctx, d.client, stuck)
	if err != nil {
		s.halt()
		return nil, fmt.Errorf("%w (kept in %s)", err, s.dir)
	}
	r.took, r.turmoil, r.quiet = time.Since(began), turmoil, quiet
	r.add(l.onceEach(r.stories)...)
	return newClusterReport(x, r, l.calls, writes, harm), s.end(r)
}

// staff starts two api instances, four workers and two recorders. Every other
// one of each reaches the nodes by wires: it is cut off from a node together
// with the other nodes. The rest stay with it, on the wrong side.
func (s *site) staff() error {
	start := func(role string, i int, cfg roleConfig) error {
		if cfg.Name = fmt.Sprintf("%s%d", role, i); i%2 == 0 {
			cfg.Bus = s.nearURL()
		}
		_, err := s.start(role, cfg)
		return err
	}
	var errs []error
	for i, address := range s.apis {
		errs = append(errs, start("api", i, roleConfig{Listen: address}))
	}
	for i := range workers {
		errs = append(errs, start("worker", i, roleConfig{Endpoints: s.endpoints, Slots: []int{clusterSlots}, Seed: uint64(i)}))
	}
	for i := range recorders {
		errs = append(errs, start("recorder", i, roleConfig{}))
	}
	s.recording = true
	return errors.Join(errs...)
}

// apisReady waits until every instance answers.
func (s *site) apisReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	c := newClient(s.apis, s.ledger, s.fault)
	for i := range s.apis {
		look := call{op: statusOp, endpoint: clusterEndpoint, path: "status/none"}
		for e, _ := c.once(ctx, look, s.apis[i]); e.Answer != gone; e, _ = c.once(ctx, look, s.apis[i]) {
			if !wait(ctx, again) {
				return errors.New("the api does not answer")
			}
		}
	}
	return nil
}

// turns does harm to each node in turn until last is nearly over. A harm that
// has begun is undone, whatever happens to ctx.
func (s *site) turns(ctx context.Context, last time.Duration) (done []period, err error) {
	end := time.Now().Add(last)
	every, gone := harmEvery, away
	if all := last / (3*clusterNodes + 1); all < every { // a short run does each thing once
		every, gone = all, all/2
	}
	next := time.Now().Add(every - gone)
	for n := 0; wait(ctx, time.Until(next)) && time.Until(end) > gone; n++ {
		p := period{from: time.Now()}
		next = p.from.Add(every)
		i := n % clusterNodes
		switch n / clusterNodes % 3 {
		case 0:
			p.what = killed
			s.nodes[i].child.kill()
			<-time.After(gone)
			err = s.startNode(i)
		case 1:
			p.what = cutOff
			s.apart(gone, s.wires.Around(i))
		case 2:
			p.what = cutPair
			s.apart(gone, s.wires.Between(i, (i+1)%clusterNodes))
		}
		if err != nil {
			return done, err
		}
		s.tally.kill(p.what)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
		s.together(within)
		cancel()
		p.until = time.Now()
		done = append(done, p)
	}
	return done, nil
}

// apart cuts wires for a while.
func (s *site) apart(d time.Duration, cut []*network.Relay) {
	for _, r := range cut {
		r.Cut()
	}
	<-time.After(d)
	for _, r := range cut {
		r.Mend()
	}
}
