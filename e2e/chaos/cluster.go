package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/e2e/chaos/network"
	"flightline/shared/endpoint"
)

// cluster is an experiment of its own: three NATS nodes under a steady load,
// each of which is killed, cut off and cut from one other in turn. What calls
// take and get as answers meanwhile is measured; the ledger is audited as ever.
type cluster struct {
	rate int           // jobs a second
	last time.Duration // of the load
	seed uint64
}

const (
	clusterNodes    = 3
	clusterEndpoint = "cluster"
	clusterSlots    = 48 // of each worker
	// harmInterval is the time from one harm to the next, as a rule; away is how
	// long a node is gone. An election and a lease fit in.
	harmInterval, away = 30 * time.Second, 12 * time.Second
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
	stuck := s.quiet(ctx, quietTimeout)
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
	r.add(l.onceEach(r.histories)...)
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
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
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
	every, gone := harmInterval, away
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
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
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

// clusterReport is a report, and what callers saw while each harm was done.
type clusterReport struct {
	*report
	x    cluster
	rows []clusterRow
}

// clusterRow is what was seen in the periods of one kind of harm.
type clusterRow struct {
	what      string
	periods   int
	submitted int
	givenUp   int
	answers   []time.Duration // until a submission was accepted, sorted
	outage    time.Duration   // the longest time in which none was accepted
	ends      []time.Duration // until the job was over, sorted; one in longJobRatio takes seconds by itself
	errors    map[string]int  // of tries, by code
}

func newClusterReport(x cluster, r *report, calls []callerCall, writes []write, harm []period) *clusterReport {
	c := &clusterReport{report: r, x: x}
	for _, what := range []string{calmly, killed, cutOff, cutPair} {
		c.rows = append(c.rows, clusterRow{what: what, errors: map[string]int{}})
	}
	for _, p := range harm {
		c.row(p.what).periods++
	}
	ended := map[string]time.Time{}
	for _, w := range writes {
		if terminal(w.Status) {
			ended[w.job] = w.at
		}
	}
	for _, call := range calls {
		row := c.row(during(harm, call.due))
		row.add(call, ended)
	}
	c.addOutages(calls, harm)
	for i := range c.rows {
		slices.Sort(c.rows[i].answers)
		slices.Sort(c.rows[i].ends)
	}
	return c
}

func (c *clusterReport) row(what string) *clusterRow {
	return &c.rows[slices.IndexFunc(c.rows, func(r clusterRow) bool { return r.what == what })]
}

// addOutages notes for how long no submission was accepted, by what was done when one was again.
func (c *clusterReport) addOutages(calls []callerCall, harm []period) {
	var accepted []time.Time
	for _, call := range calls {
		if call.accepted {
			accepted = append(accepted, call.due.Add(call.took))
		}
	}
	slices.SortFunc(accepted, time.Time.Compare)
	for i := 1; i < len(accepted); i++ {
		row := c.row(during(harm, accepted[i]))
		row.outage = max(row.outage, accepted[i].Sub(accepted[i-1]))
	}
}

// during is the harm that was done at t.
func during(harm []period, t time.Time) string {
	for _, p := range harm {
		if !t.Before(p.from) && t.Before(p.until) {
			return p.what
		}
	}
	return calmly
}

func (r *clusterRow) add(c callerCall, ended map[string]time.Time) {
	r.submitted++
	for _, err := range c.errors {
		r.errors[err]++
	}
	if !c.accepted {
		r.givenUp++
		return
	}
	r.answers = append(r.answers, c.took)
	if at, ok := ended[c.job]; ok {
		r.ends = append(r.ends, at.Sub(c.due))
	}
}

// quantile of sorted durations, 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// good reports whether the ledger is clean, every submission was accepted in
// the end, and each kind of harm was done to every node.
func (c *clusterReport) good() bool {
	for _, r := range c.rows {
		if r.givenUp > 0 || r.what != calmly && r.periods < clusterNodes {
			return false
		}
	}
	return c.report.good()
}

func (c *clusterReport) print(out io.Writer) {
	c.report.print(out)
	_, _ = fmt.Fprintf(out, "\n%d jobs/s for %s: what callers saw, by what was done when they came\n\n", c.x.rate, c.x.last)
	_, _ = fmt.Fprintln(out, "| | times | jobs | none accepted for | accepted p50 | p99 | slowest | ended p50 | p99 | tries that failed | given up |")
	_, _ = fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range c.rows {
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		_, _ = fmt.Fprintf(out, "| %s | %d | %d | %s | %s | %s | %s | %s | %s | %s | %d |\n", r.what, r.periods, r.submitted, ms(r.outage),
			ms(quantile(r.answers, 0.5)), ms(quantile(r.answers, 0.99)), ms(quantile(r.answers, 1)),
			ms(quantile(r.ends, 0.5)), ms(quantile(r.ends, 0.99)), list(r.errors), r.givenUp)
	}
}
