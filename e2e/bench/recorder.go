package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flightline/services/recorder"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	roleRecorder = "recorder"
	// steadyRate is the load, in jobs a second, under which the recorder's lag
	// is measured.
	steadyRate = 500
	// lagAim is how far an event may be behind what it tells.
	lagAim = time.Second
)

// serveRecorder is a recorder that removes records as soon as it may.
func serveRecorder(ctx context.Context, cfg config, w *wire) error {
	in, err := newInsider(ctx, cfg, roleRecorder, queue.Config{ForgetGrace: time.Millisecond})
	if err != nil {
		return err
	}
	defer in.nc.Close()
	log, err := events.New(in.nc, in.js, nil)
	if err != nil {
		return err
	}
	s, err := recorder.New(recorder.Config{}, recorder.Deps{Queue: in.q, Events: log})
	if err != nil {
		return err
	}
	return together(ctx, func() error { return w.ready(ready{}, noOrders) }, in.q.Run, s.Run)
}

// recorder measures, at a steady load, how late events are and what the
// recorder costs: events, counts, and the removal of records, which are kept
// for a second here.
func (b *bench) recorder(ctx context.Context) ([]row, error) {
	var rows []row
	for _, s := range setups() {
		if s.embedded || b.opts.short && s.sync == syncAlways {
			continue
		}
		_, _ = fmt.Fprintf(b.progress, "recorder: %s\n", s.name)
		got, err := b.recorderOn(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, rowsOf(s.name, roleRecorder, got)...)
	}
	return rows, nil
}

func (b *bench) recorderOn(ctx context.Context, s setup) ([]pair, error) {
	prepare, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	on, err := b.newSite(prepare, siteConfig{name: "recorder-" + s.name, sync: s.sync, slots: slots, recorder: true})
	if err != nil {
		return nil, err
	}
	defer on.close()
	lag := testCase{name: roleRecorder, ours: recorderLag}
	return b.measure(ctx, lag, &round{site: on, load: b.sizes.steady})
}

// recorderLag is one round.
func recorderLag(ctx context.Context, r *round) (reading, error) {
	log, err := events.New(r.nc, r.js, nil)
	if err != nil {
		return nil, err
	}
	stream, err := r.js.Stream(ctx, streams.Events)
	if err != nil {
		return nil, err
	}
	from := stream.CachedInfo().State.LastSeq
	before := r.usage(false)
	began := time.Now()
	_, err = load(ctx, r.load, slots, func(ctx context.Context, i int) error {
		due := time.NewTimer(time.Until(began.Add(time.Duration(i) * time.Second / steadyRate)))
		defer due.Stop()
		select {
		case <-due.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := r.http.run(busyEndpoint)
		return err
	})
	if err != nil {
		return nil, err
	}
	late, err := lateness(ctx, log, from, r.load)
	if err != nil {
		return nil, err
	}
	after := r.usage(false)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	per := func(part string) float64 { return (after[part] - before[part]).Seconds() * 1000 / float64(r.load) }
	got := reading{}.with("lag p50", milliseconds, ms(quantile(late, 0.5))).with("lag p99", milliseconds, ms(quantile(late, 0.99)))
	got = got.with("lag most", milliseconds, ms(late[len(late)-1]))
	return got.with("cpu recorder", perThousand, per(roleRecorder)).with("cpu server", perThousand, per(roleServer)), nil
}

// lateness waits for the ends of n jobs in the log, and returns how long after
// the end each got there, sorted.
func lateness(ctx context.Context, log *events.Log, from uint64, n int) ([]time.Duration, error) {
	late := make([]time.Duration, 0, n)
	all := errors.New("all")
	err := log.Follow(ctx, from, func(e events.Event) error {
		if e.Kind == events.Completed {
			late = append(late, e.Written.Sub(e.At))
		}
		if len(late) == n {
			return all
		}
		return nil
	})
	if !errors.Is(err, all) {
		return nil, fmt.Errorf("%d of %d ends are told: %w", len(late), n, errors.Join(err, ctx.Err()))
	}
	slices.Sort(late)
	return late, nil
}
