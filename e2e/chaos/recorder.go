package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/services/recorder"
	"flightline/shared/events"
	"flightline/shared/queue"
)

// recorders is how many run at the same time. Nobody tells them that only one
// should: each believes to be active, which has to do no harm.
const recorders = 2

// forgetGrace is a little longer than any call lasts, so that records whose ttl
// is cut short are removed in the middle of the turmoil.
const forgetGrace = 6 * time.Second

// runRecorder is a recorder, active from the start.
func runRecorder(ctx context.Context, cfg roleConfig) error {
	books, err := openLedger(cfg.Ledger, cfg.Name)
	if err != nil {
		return err
	}
	nc, q, err := openQueue(ctx, cfg, nil)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	log, err := events.New(nc, js, logTo(os.Stderr))
	if err != nil {
		return err
	}
	die := deathAt(cfg, books)
	s, err := recorder.New(recorder.Config{
		Log:   logTo(os.Stderr),
		Point: func(p recorder.Point) { die(queue.Point(p)) },
	}, recorder.Deps{Queue: q, Events: log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

// keepRecorders keeps all of them until ctx ends.
func (s *site) keepRecorders(ctx context.Context, seed uint64, calm <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range recorders {
		g.Go(func() error { return s.keepRecorder(ctx, i, seed+uint64(i), calm) }) //nolint:gosec // small
	}
	return g.Wait()
}

// lastRecorders starts those that are left alone; what they tell is audited.
func (s *site) lastRecorders() error {
	s.recording = true
	for i := range recorders {
		if _, err := s.start("recorder", roleConfig{Name: fmt.Sprintf("recorder%d-last", i)}); err != nil {
			return err
		}
	}
	return nil
}

// keepRecorder keeps a recorder until ctx ends. It dies between any two steps.
func (s *site) keepRecorder(ctx context.Context, index int, seed uint64, calm <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // chance, no secret
	steps := []recorder.Point{recorder.AfterAnnounce, recorder.AfterEvents, recorder.AfterPosition}
	return s.keep(ctx, "recorder", func(n int) (roleConfig, fate) {
		cfg := roleConfig{Name: fmt.Sprintf("recorder%d-%d", index, n)}
		select {
		case <-calm:
			return cfg, fate{}
		default:
		}
		cfg.DieAt, cfg.DieAfter = queue.Point(steps[rng.IntN(len(steps))]), 1+rng.Int64N(30)
		return cfg, fate{kill: between(rng, 2*time.Second, 8*time.Second)}
	})
}
