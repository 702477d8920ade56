package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	leaderCase = "leader"
	// leaderSettled is how long the leader is left alone before it is measured.
	leaderSettled = 10 * time.Second
	// leaderTrips are the decisions that are timed in a round.
	leaderTrips = 20
	percent     = "%"
)

// leaderEndpoint names the endpoints whose workers the autoscaler starts.
func leaderEndpoint(i int) string { return fmt.Sprintf("scaled-%d", i) }

// leader measures what the autoscaler that leads costs with many endpoints,
// all idle and then with some that are busy, and how long after a job came to
// one without a worker it is decided that one is to start. The workers are
// another process's.
func (b *bench) leader(ctx context.Context) ([]row, error) {
	prepare, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	s, err := b.leaderSite(prepare)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var rows []row
	for _, busy := range []int{0, b.sizes.scaledBusy} {
		_, _ = fmt.Fprintf(b.progress, "leader: %d endpoints, %d busy\n", b.sizes.scaled, busy)
		got, err := b.leaderRounds(ctx, s, busy)
		if err != nil {
			return nil, fmt.Errorf("%d busy: %w", busy, err)
		}
		rows = append(rows, rowsOf(leaderCase, fmt.Sprintf("%d endpoints, %d busy", b.sizes.scaled, busy), got)...)
	}
	return rows, nil
}

// leaderSite is a site with a leader that has no machine of its own, and a host
// whose machine starts the workers.
func (b *bench) leaderSite(ctx context.Context) (_ *site, err error) {
	s := &site{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	sc := siteConfig{name: leaderCase}
	cfg := config{User: "bench", Password: leaderCase, Key: "bench-" + leaderCase, Dir: filepath.Join(b.dir, sc.name)}
	if err := b.start(ctx, s, sc, &cfg, roleServer, roleAPI); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, cfg); err != nil {
		return nil, err
	}
	const atOnce = 8
	_, err = load(ctx, b.sizes.scaled, atOnce, func(ctx context.Context, i int) error {
		e, err := s.reg.Endpoints.Create(ctx, endpoint.Endpoint{
			ID: leaderEndpoint(i), Created: time.Now(), WorkersMax: 1, IdleTimeout: time.Second,
			Fleet: endpoint.Fleet{Driver: "process", Command: []string{"worker"}},
		})
		if err != nil {
			return err
		}
		return s.q.CreateEndpoint(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return s, b.start(ctx, s, sc, &cfg, roleLeader, roleHost)
}

// leaderRounds keeps the first endpoints busy meanwhile.
func (b *bench) leaderRounds(ctx context.Context, s *site, busy int) ([]pair, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, working := errgroup.WithContext(ctx)
	for i := range busy {
		g.Go(func() error { return s.keepBusy(working, leaderEndpoint(i)) })
	}
	var pairs []pair
	var err error
	for i := 0; i < b.sizes.leads && err == nil; i++ {
		select {
		case <-time.After(leaderSettled):
		case <-working.Done():
		}
		var got reading
		if got, err = b.leaderRound(working, s, busy+i*leaderTrips); err == nil {
			pairs = append(pairs, pair{ours: got})
		}
	}
	cancel()
	return pairs, errors.Join(err, g.Wait())
}

// keepBusy submits jobs as fast as hostWorks has them done.
func (s *site) keepBusy(ctx context.Context, id string) error {
	for ctx.Err() == nil {
		if err := s.submitOne(ctx, id); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(hostWorks):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *site) submitOne(ctx context.Context, id string) error {
	e, err := s.reg.Endpoints.Get(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.q.Submit(ctx, e, queue.NewID(job.Async), job.Async, job.Request{Input: payload})
	return err
}

// leaderRound counts what is used while nothing is asked of the leader, then
// times its decisions.
func (b *bench) leaderRound(ctx context.Context, s *site, from int) (reading, error) {
	before, err := s.led(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(b.sizes.leadWindow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := s.led(ctx)
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at)
	share := func(a, b time.Duration) float64 { return 100 * (b - a).Seconds() / took.Seconds() }
	got := reading{}.with("cpu leader", percent, share(before.leader, after.leader)).with("cpu server", percent, share(before.server, after.server))
	got = got.with("requests", perSecond, float64(after.sent-before.sent)/took.Seconds()).with("rss leader", "MB", after.rss)
	delays := make([]time.Duration, 0, leaderTrips)
	for i := range leaderTrips {
		d, err := s.decided(ctx, leaderEndpoint((from+i)%b.sizes.scaled))
		if err != nil {
			return nil, err
		}
		delays = append(delays, d)
	}
	slices.Sort(delays)
	return append(got, latency(sample{P50: quantile(delays, 0.5), P99: quantile(delays, 0.99)})...), nil
}

// led is what the leader has used so far.
type led struct {
	at             time.Time
	leader, server time.Duration
	sent           int // messages
	rss            float64
}

func (s *site) led(ctx context.Context) (led, error) {
	l := led{at: time.Now()}
	for _, c := range s.children {
		switch c.role {
		case roleServer:
			l.server = cpuTime(c.pid)
		case roleLeader:
			l.leader, l.rss = cpuTime(c.pid), resident(c.pid)
			said, err := c.do(ctx, order{Op: opSent})
			if err != nil {
				return l, err
			}
			l.sent = said.N
		}
	}
	return l, nil
}

// decided submits a job to an endpoint without workers and returns how long
// after that a decision about it was written.
func (s *site) decided(ctx context.Context, id string) (time.Duration, error) {
	written := make(chan *nats.Msg, 1)
	sub, err := s.nc.ChanSubscribe(streams.ScalingSubject(id), written)
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.submitOne(ctx, id); err != nil {
		return 0, err
	}
	select {
	case <-written:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("no decision about %s: %w", id, ctx.Err())
	}
}
