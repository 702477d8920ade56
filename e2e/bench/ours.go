package main

import (
	"context"
	"time"

	"flightline/shared/job"
)

func ourIdle(_ context.Context, r *round) (reading, error) {
	var got reading
	for _, c := range r.children {
		switch c.role {
		case roleServer, roleAPI, roleEmbedded, roleWorker:
			got = got.with("rss "+c.role, "MB", resident(c.pid))
		}
	}
	return got, nil
}

// ourSubmit has clients submit where nobody works.
func ourSubmit(callers int, read func(sample) reading) func(context.Context, *round) (reading, error) {
	return func(ctx context.Context, r *round) (reading, error) {
		return r.metered(false, callers, read, func(n int) (sample, error) {
			return load(ctx, n, callers, func(context.Context, int) error { return r.http.submit(quietEndpoint) })
		}, func() error { return r.empty(ctx, quietEndpoint) })
	}
}

func ourJobs(ctx context.Context, r *round) (reading, error) {
	return r.jobs(ctx, r.link, busyEndpoint, func(n int) error {
		_, err := load(ctx, n, slots, func(context.Context, int) error { return r.http.submit(busyEndpoint) })
		return err
	})
}

func bareJobs(ctx context.Context, r *round) (reading, error) {
	return r.jobs(ctx, r.bare, bareEndpoint, func(n int) error {
		_, err := r.publisher().do(ctx, order{Op: opSubmit, N: n, Callers: slots})
		return err
	})
}

// jobs measures from the first submission to the last acknowledgement.
func (r *round) jobs(ctx context.Context, at link, endpointID string, submit func(n int) error) (reading, error) {
	rate := func(s sample) reading { return reading{{"rate", perSecond, s.rate()}} }
	return r.metered(at == r.bare, slots, rate, func(n int) (sample, error) {
		began := time.Now()
		if err := submit(n); err != nil {
			return sample{}, err
		}
		err := at.drained(ctx, endpointID)
		return sample{N: n, Elapsed: time.Since(began)}, err
	}, nothing)
}

func nothing() error { return nil }

func ourRunSync(callers int, read func(sample) reading) func(context.Context, *round) (reading, error) {
	return func(ctx context.Context, r *round) (reading, error) {
		return r.metered(false, callers, read, func(n int) (sample, error) {
			got, err := load(ctx, n, callers, func(context.Context, int) error { return r.http.runSync(busyEndpoint) })
			if err == nil {
				err = r.drained(ctx, busyEndpoint)
			}
			return got, err
		}, nothing)
	}
}

// ourStatus asks for finished jobs.
func ourStatus(ctx context.Context, r *round) (reading, error) {
	id, err := r.http.run(busyEndpoint)
	if err != nil {
		return nil, err
	}
	if err := r.drained(ctx, busyEndpoint); err != nil {
		return nil, err
	}
	got, err := load(ctx, r.trips, 1, func(context.Context, int) error { return r.http.status(busyEndpoint, id) })
	return latency(got), err
}

// ourCancel cancels waiting jobs.
func ourCancel(ctx context.Context, r *round) (reading, error) {
	ids, err := r.submitted(ctx, r.trips)
	if err != nil {
		return nil, err
	}
	got, err := load(ctx, len(ids), 1, func(_ context.Context, i int) error { return r.http.cancel(quietEndpoint, ids[i]) })
	return latency(got), err
}

// submitted puts n jobs into the quiet queue.
func (s *site) submitted(ctx context.Context, n int) ([]job.ID, error) {
	ids := make([]job.ID, n)
	_, err := load(ctx, n, slots, func(_ context.Context, i int) (err error) {
		ids[i], err = s.http.run(quietEndpoint)
		return err
	})
	return ids, err
}
