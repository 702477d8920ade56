package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// experiment is one run of the harness.
type experiment struct {
	nodes, jobs int
	lease       time.Duration
	least       int // crashes wanted at each point
	seed        uint64
	limit       time.Duration // for the turmoil
}

const (
	workers = 4
	// quietTimeout bounds the wait for the end of all that is under way.
	quietTimeout = 90 * time.Second
)

// run makes the turmoil, waits until all is quiet, and audits.
func (x experiment) run(ctx context.Context) (*report, error) {
	began := time.Now()
	s, err := newSite(ctx, x.nodes, newEndpoint("chaos", x.lease), newEndpoint("purged", x.lease))
	if err != nil {
		return nil, err
	}
	d := newDriver(s, x.seed)
	if err := x.turmoil(ctx, s, d); err != nil {
		return nil, errors.Join(err, s.close())
	}
	calm := time.Now()
	stuck := s.quiet(ctx, quietTimeout)
	quiet := time.Since(calm)
	last, stop := context.WithTimeout(ctx, quietTimeout)
	d.lastLook(last)
	stop()
	r, err := s.audit(ctx, d.client, stuck)
	if err != nil {
		s.halt()
		return nil, fmt.Errorf("%w (kept in %s)", err, s.dir)
	}
	r.took, r.turmoil, r.quiet = time.Since(began), calm.Sub(began), quiet
	r.least(x)
	return r, s.end(r)
}

// turmoil returns when the driver is done; api instances and workers live on,
// and new ones are left alone.
func (x experiment) turmoil(ctx context.Context, s *site, d *driver) error {
	ctx, cancel := context.WithTimeout(ctx, x.limit)
	defer cancel()
	harm, stopHarm := context.WithCancel(ctx)
	defer stopHarm()
	g, harm := errgroup.WithContext(harm)
	calm := make(chan struct{})
	for i := range s.apis {
		g.Go(func() error { return s.keepAPI(harm, i, x.seed+uint64(i), calm) }) //nolint:gosec // small
	}
	for i := range workers {
		g.Go(func() error {
			return s.keepWorkers(harm, fmt.Sprintf("worker%d", i), []int{4, 1}, x.seed+uint64(i), calm) //nolint:gosec // small
		})
	}
	g.Go(func() error { return s.keepRecorders(harm, x.seed, calm) })
	g.Go(func() error { return s.injectFaults(harm, x.seed) })
	d.run(harm, x.jobs, func() bool { return s.tally.reached(x.least) && s.tally.had(x.harm()) })
	close(calm)
	stopHarm()
	if err := g.Wait(); err != nil {
		return err
	}
	return s.peace(ctx)
}

// peace replaces what is left of the turmoil by api instances and workers
// that are left alone.
func (s *site) peace(ctx context.Context) error {
	if len(s.nodes) > 1 {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		s.together(within)
		cancel()
	}
	s.mu.Lock()
	var old []*child
	for _, c := range s.running {
		if !s.isNode(c) {
			old = append(old, c)
		}
	}
	s.mu.Unlock()
	for _, c := range old {
		c.kill()
	}
	for i, address := range s.apis {
		if _, err := s.start("api", roleConfig{Name: fmt.Sprintf("api%d-last", i), Listen: address}); err != nil {
			return err
		}
	}
	if err := s.lastRecorders(); err != nil {
		return err
	}
	for i := range workers {
		cfg := roleConfig{Name: fmt.Sprintf("worker%d-last", i), Endpoints: s.endpoints, Slots: []int{8, 4}, Seed: uint64(i)}
		if _, err := s.start("worker", cfg); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) isNode(c *child) bool {
	for _, n := range s.nodes {
		if n.child == c {
			return true
		}
	}
	return false
}

// quiet waits until nothing waits or runs any more, and returns the jobs that
// do not come to rest.
func (s *site) quiet(ctx context.Context, within time.Duration) []write {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		left, err := s.waiting(ctx)
		if err == nil && left == "" && len(s.observer.undecided()) == 0 {
			return nil
		}
		if !wait(ctx, 250*time.Millisecond) {
			if left == "" && err == nil {
				return s.observer.undecided()
			}
			s.fault("not quiet when all should be: %s (%v)", left, err)
			return s.observer.undecided()
		}
	}
}

// waiting names the jobs whose queue message has something to wait for, and
// counts what will be delivered again, if that is more than the messages of
// expired jobs; "" if all is quiet. A job whose ttl was made shorter leaves its
// message until the ttl that it was sent with is over: only the server removes
// it. A killed server may have forgotten to remove what was acknowledged.
func (s *site) waiting(ctx context.Context) (string, error) {
	var left []string
	out, expired := 0, 0
	for _, e := range s.endpoints {
		err := s.each(ctx, streams.Jobs(e.ID), func(m *jetstream.RawStreamMsg) {
			id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
			switch over, decided := s.observer.isOver(id, attemptOf(m.Header)); {
			case over && !decided:
				expired++
			case !over:
				left = append(left, id)
			}
		})
		if err != nil {
			return "", err
		}
		n, err := s.delivered(ctx, e)
		if err != nil {
			return "", err
		}
		out += n
	}
	s.expiredLeft = expired
	if len(left) == 0 && out > expired {
		return fmt.Sprintf("%d deliveries, %d of them of expired jobs", out, expired), nil
	}
	return strings.Join(left, " "), nil
}

// delivered counts what the consumers of an endpoint have yet to deliver, or
// have delivered and not seen acknowledged.
func (s *site) delivered(ctx context.Context, e endpoint.Endpoint) (int, error) {
	total := 0
	for _, class := range job.Classes() {
		within, cancel := context.WithTimeout(ctx, 2*time.Second)
		c, err := s.js.Consumer(within, streams.Jobs(e.ID), streams.Consumer(class))
		cancel()
		if err != nil {
			return 0, fmt.Errorf("count jobs: %w", err)
		}
		info := c.CachedInfo()
		total += int(info.NumPending) + info.NumAckPending //nolint:gosec // far from overflow
	}
	return total, nil
}

// end cleans up; after violations the ledgers and logs stay to be looked at.
func (s *site) end(r *report) error {
	if len(r.violations) == 0 {
		return s.close()
	}
	s.halt()
	r.kept = s.dir
	return nil
}

// harm is what has to be done to the bus for a result to count.
func (x experiment) harm() []string {
	if x.nodes > 1 {
		return []string{leaderKill, partition}
	}
	return []string{nodeKill, longOutage}
}
