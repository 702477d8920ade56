package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// The kinds of harm that are done to the bus.
const (
	nodeKill   = "nats killed"
	longOutage = "nats away for 2 leases"
	leaderKill = "nats leader killed"
	partition  = "nats leader cut off"
)

// weather does harm to the bus until ctx ends.
func (s *site) weather(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // chance, no secret
	for n := 0; wait(ctx, between(rng, 5*time.Second, 9*time.Second)); n++ {
		var err error
		if len(s.nodes) == 1 {
			err = s.squall(rng, n)
		} else {
			err = s.storm(ctx, rng, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// squall kills the only node and brings it back. It is not cut short: a node
// is always brought back.
func (s *site) squall(rng *rand.Rand, n int) error {
	away, what := between(rng, 100*time.Millisecond, 1200*time.Millisecond), nodeKill
	if n%3 == 1 {
		away, what = 2*s.endpoints[0].Lease+500*time.Millisecond, longOutage
	}
	s.tally.kill(what)
	s.nodes[0].child.kill()
	<-time.After(away)
	return s.startNode(0)
}

// storm kills or suspends one node of three, the leader of some stream as a
// rule, and waits until all are together again.
func (s *site) storm(ctx context.Context, rng *rand.Rand, n int) error {
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
