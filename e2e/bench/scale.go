package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	scaleCase = "scale"
	// scaleSlots keeps the envs that only wait their turn quiet.
	scaleSlots = 4
	// fillWithin bounds the filling of the deep queue.
	fillWithin = 10 * time.Minute
)

// scale compares three installations that take turns: a small one, one with
// many endpoints, and one with a deep queue.
func (b *bench) scale(ctx context.Context) ([]row, error) {
	ends := []struct {
		name          string
		crowd, queued int
	}{
		{"small", b.sizes.endpointsFew, b.sizes.queuedFew},
		{fmt.Sprintf("%d endpoints", b.sizes.endpoints), b.sizes.endpoints, b.sizes.queuedFew},
		{fmt.Sprintf("%d queued", b.sizes.queued), b.sizes.endpointsFew, b.sizes.queued},
	}
	envs := make([]*env, len(ends))
	defer func() {
		for _, s := range envs {
			if s != nil {
				s.close()
			}
		}
	}()
	for i, end := range ends {
		_, _ = fmt.Fprintf(b.progress, "scale: prepare %s\n", end.name)
		var err error
		if envs[i], err = b.scaleEnv(ctx, fmt.Sprintf("scale-%d", i), end.crowd, end.queued); err != nil {
			return nil, fmt.Errorf("%s: %w", end.name, err)
		}
	}
	readings := make([][]reading, len(ends)) // of each site, by round
	for i := range b.sizes.rounds + 1 {
		_, _ = fmt.Fprintf(b.progress, "scale: round %d\n", i)
		for n, s := range envs {
			r := &round{env: s, trips: b.sizes.scaleTrips}
			got, err := step(ctx, scaleRound, r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ends[n].name, err)
			}
			if i > 0 {
				readings[n] = append(readings[n], got)
			}
		}
	}
	var rows []row
	for n := 1; n < len(ends); n++ {
		var pairs []pair
		for i, small := range readings[0] {
			pairs = append(pairs, pair{bare: small, ours: readings[n][i]})
		}
		rows = append(rows, rowsOf(scaleCase, ends[n].name, pairs)...)
	}
	return rows, nil
}

func (b *bench) scaleEnv(ctx context.Context, name string, crowd, queued int) (*env, error) {
	prepare, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	s, err := b.newEnv(prepare, envConfig{name: name, slots: scaleSlots, crowd: crowd})
	if err != nil {
		return nil, err
	}
	if err := s.fill(prepare, queued); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// fill queues jobs where nobody works, as the API does but for HTTP.
func (s *env) fill(ctx context.Context, n int) error {
	e, err := s.reg.Endpoints.Get(ctx, quietEndpoint)
	if err != nil {
		return err
	}
	const atOnce = 256
	_, err = load(ctx, n, atOnce, func(ctx context.Context, _ int) error {
		_, err := s.q.Submit(ctx, e, queue.NewID(job.Async), job.Async, job.Request{Input: payload})
		return err
	})
	return err
}

// scaleRound times every operation, one at a time, on the quiet endpoint and
// its queue; runsync on the busy one beside it. It leaves the queue as deep as
// it was.
func scaleRound(ctx context.Context, r *round) (reading, error) {
	var got reading
	timed := func(name string, op func(ctx context.Context, i int) error) error {
		s, err := load(ctx, r.trips, 1, op)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		got = got.with(name, milliseconds, float64(s.P50.Microseconds())/1000)
		return nil
	}
	ids := make([]job.ID, r.trips)
	err := errors.Join(
		timed("run", func(_ context.Context, i int) (err error) { ids[i], err = r.http.run(quietEndpoint); return err }),
		timed("status", func(_ context.Context, i int) error { return r.http.status(quietEndpoint, ids[i]) }),
		timed("cancel", func(_ context.Context, i int) error { return r.http.cancel(quietEndpoint, ids[i]) }),
		timed("runsync", func(context.Context, int) error { return r.http.runSync() }),
	)
	if err != nil {
		return nil, err
	}
	if err := r.leases(ctx, timed); err != nil {
		return nil, err
	}
	return got, r.raw(ctx, timed)
}

type timer func(name string, op func(ctx context.Context, i int) error) error

// leases times what a worker does. Jobs are added first, as many as it takes.
func (r *round) leases(ctx context.Context, timed timer) error {
	if _, err := r.submitted(ctx, 2*r.trips); err != nil { // raw takes as many
		return err
	}
	e, err := r.reg.Endpoints.Get(ctx, quietEndpoint)
	if err != nil {
		return err
	}
	consumer, err := r.q.Consume(ctx, e, "scale", 1)
	if err != nil {
		return err
	}
	defer consumer.Close()
	leases := make([]*queue.Lease, r.trips)
	err = timed("pick up", func(ctx context.Context, i int) (err error) { leases[i], err = consumer.Next(ctx); return err })
	if err != nil {
		return err
	}
	return timed("complete", func(ctx context.Context, i int) error {
		_, err := leases[i].Complete(ctx, leases[i].Input)
		return err
	})
}

// raw times the server's own part: an acknowledgement that is confirmed, and a
// delete by sequence.
func (r *round) raw(ctx context.Context, timed timer) error {
	f, err := newFetcher(r.nc, quietEndpoint)
	if err != nil {
		return err
	}
	defer f.close()
	fetched, seqs := make([]*nats.Msg, r.trips), make([]uint64, r.trips)
	for i := range fetched {
		if fetched[i], err = f.next(ctx); err != nil {
			return err
		}
		m := bareMessage(streams.JobSubject(quietEndpoint, job.LowPriority, queue.NewID(job.Async)))
		m.Header.Set(jetstream.MsgTTLHeader, bareTTL)
		if seqs[i], err = write(ctx, r.nc, m, 0); err != nil {
			return err
		}
	}
	return errors.Join(
		timed("ack", func(ctx context.Context, i int) error {
			_, err := r.nc.RequestWithContext(ctx, fetched[i].Reply, []byte("+ACK"))
			return err
		}),
		timed("delete", func(ctx context.Context, i int) error {
			return deleteSeq(ctx, r.nc, streams.Jobs(quietEndpoint), seqs[i])
		}),
	)
}
