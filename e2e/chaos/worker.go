package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
)

// workerRole is a worker that misbehaves. It is written on the leases of
// package queue, as package worker is, to be able to.
type workerRole struct {
	cfg   roleConfig
	q     *queue.Queue
	books *ledger

	mu  sync.Mutex
	rng *rand.Rand
}

// deathAt returns a hook that kills the process at the given point.
func deathAt(cfg roleConfig, books *ledger) func(queue.Point) {
	var times atomic.Int64
	return func(p queue.Point) {
		if p != cfg.DieAt || times.Add(1) != cfg.DieAfter {
			return
		}
		books.write(entry{Kind: dying, Point: string(p)})
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // not one step further
	}
}

// runWorker takes jobs until ctx ends, then gives back what it has.
func runWorker(ctx context.Context, cfg roleConfig) error {
	books, err := openLedger(cfg.Ledger, cfg.Name)
	if err != nil {
		return err
	}
	nc, q, err := openQueue(ctx, cfg, deathAt(cfg, books))
	if err != nil {
		return err
	}
	defer nc.Close()
	w := &workerRole{cfg: cfg, q: q, books: books, rng: rand.New(rand.NewPCG(cfg.Seed, 1))} //nolint:gosec // chance, no secret
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return q.Run(alive) })
	err = w.take(ctx, alive)
	stop()
	return errors.Join(err, g.Wait())
}

func (w *workerRole) take(ctx, alive context.Context) error {
	var slots sync.WaitGroup
	for i, e := range w.cfg.Endpoints {
		consumer, err := w.q.Consume(alive, e, w.cfg.Name, w.cfg.Slots[i])
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, consumer.Close)
		for range w.cfg.Slots[i] {
			slots.Go(func() {
				for {
					l, err := consumer.Next(alive)
					if err != nil {
						return
					}
					w.run(ctx, alive, e, l)
				}
			})
		}
	}
	slots.Wait()
	return nil
}

func (w *workerRole) entryOf(l *queue.Lease, k kind) entry {
	return entry{Kind: k, Endpoint: l.Job.Endpoint, Job: string(l.Job.ID), Attempt: l.Job.Attempt, Run: l.Job.Run}
}

// run is one run of a job: ctx ends when the worker is to stop, alive later.
func (w *workerRole) run(ctx, alive context.Context, e endpoint.Endpoint, l *queue.Lease) {
	w.books.write(w.entryOf(l, began))
	var in input
	if err := json.Unmarshal(l.Input, &in); err != nil {
		fmt.Fprintf(os.Stderr, "job %s: input: %v\n", l.Job.ID, err) // its hash is not checked, its form is
		in = input{Tag: -1}
	}
	w.mu.Lock()
	b := choose(w.rng, in, &l.Job, e.Lease, w.q.Until(l.Deadline()), w.cfg.DieAt)
	w.mu.Unlock()

	held, letGo := context.WithCancel(alive)
	defer letGo()
	var beats sync.WaitGroup
	defer beats.Wait()
	if b.deaf {
		quiet := w.entryOf(l, silent)
		quiet.Call = time.Now().UnixNano()
		w.books.write(quiet)
	} else {
		beats.Go(func() { w.beat(held, letGo, e.Lease, l) })
	}
	w.chatter(held, l, b)
	working, stop := context.WithCancel(held) // ends when the lease is lost, too
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	b.finish(working)
	if ctx.Err() != nil {
		b.end = giveBack
	}
	w.settle(alive, l, b)
	letGo()
}

// beat sends heartbeats. Its own lateness, which a busy machine causes, it
// writes down: others may rightly take it for dead then.
func (w *workerRole) beat(ctx context.Context, letGo func(), lease time.Duration, l *queue.Lease) {
	every := lease / 3
	due := time.Now().Add(every)
	next := time.NewTimer(every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-l.Changed():
		}
		if late := time.Since(due); late > lease/4 {
			e := w.entryOf(l, silent)
			e.Call = due.Add(-every).UnixNano()
			w.books.write(e)
		}
		if err := l.Extend(ctx); errors.Is(err, queue.ErrLost) {
			letGo()
			return
		}
		due = time.Now().Add(every)
		next.Reset(every)
	}
}

// chatter sends progress and chunks. After an error it is not known whether
// the chunk is there, so it falls silent.
func (w *workerRole) chatter(ctx context.Context, l *queue.Lease, b behaviour) {
	for n := range b.progress {
		_ = l.Progress(ctx, json.RawMessage(fmt.Sprintf(`{"step":%d}`, n))) // for people who look
	}
	for n := range b.chunks {
		chunk := json.RawMessage(fmt.Sprintf(`{"n":%d,"by":"%d/%d"}`, n, l.Job.Attempt, l.Job.Run))
		if l.Emit(ctx, chunk) != nil {
			return
		}
	}
	if l.Flush(ctx) != nil {
		return
	}
	for n := range b.chunks {
		e := w.entryOf(l, emitted)
		e.Value = int64(n)
		w.books.write(e)
	}
}

// settle ends the run as behaviour says, again and again while NATS is away.
func (w *workerRole) settle(ctx context.Context, l *queue.Lease, b behaviour) {
	told := w.entryOf(l, ended)
	told.Call = time.Now().UnixNano()
	try := w.deliver(l, b)
	if try == nil {
		return
	}
	for {
		status, err := try(ctx)
		told.At = time.Now().UnixNano()
		switch {
		case err == nil && b.end == giveBack:
			told.Kind = gaveBack
		case err == nil:
			told.Status = status
		case errors.Is(err, queue.ErrLost):
			told.Kind = refused
		default:
			if !wait(ctx, again) {
				return
			}
			continue
		}
		w.books.write(told)
		return
	}
}

// deliver is the call that ends the run, nil if it is left to others.
func (w *workerRole) deliver(l *queue.Lease, b behaviour) func(context.Context) (string, error) {
	switch b.end {
	case complete:
		out := output(&l.Job, w.cfg.Name, b.size)
		e := w.entryOf(l, intends)
		e.Hash = hashOf(out)
		w.books.write(e)
		return func(ctx context.Context) (string, error) {
			j, err := l.Complete(ctx, out)
			if err != nil {
				return "", err
			}
			return string(j.Status), nil
		}
	case fail:
		return func(ctx context.Context) (string, error) {
			j, err := l.Fail(ctx, "the handler did not want to")
			if err != nil {
				return "", err
			}
			return string(j.Status), nil
		}
	case timeOut:
		return func(ctx context.Context) (string, error) {
			j, err := l.TimeOut(ctx)
			if err != nil {
				return "", err
			}
			return string(j.Status), nil
		}
	case giveBack:
		return func(ctx context.Context) (string, error) { return "", l.Release(ctx) }
	case overrun:
	}
	return nil
}
