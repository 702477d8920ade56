package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"flightline/e2e/gauge"
	"flightline/shared/job"
)

// bench is one run.
type bench struct {
	opts     options
	sizes    sizes
	dir      string
	progress io.Writer
}

// When a write is on the disk, as `flightline dev --sync` names it. The bare
// pipeline beside group has a server that fsyncs each write by itself: that is
// all it could have.
const (
	syncInterval = "interval" // within two minutes
	syncAlways   = "always"   // before its answer, each by itself
	syncGroup    = "group"    // before its answer, one fsync for all who wait
)

// setup is one way to run Flightline.
type setup struct {
	name     string
	sync     string
	embedded bool
	short    bool     // measured with -short too
	cases    []string // nil means all
}

func setups() []setup {
	inOne := []string{"submit", "jobs", "runsync1", "idle"}
	return []setup{
		{name: "interval", sync: syncInterval, short: true},
		{name: "group", sync: syncGroup, short: true},
		{name: "always", sync: syncAlways, short: true, cases: []string{"submit", "jobs", "runsync1", "runsync64"}},
		{name: "embedded-interval", sync: syncInterval, embedded: true, cases: inOne},
		{name: "embedded-group", sync: syncGroup, embedded: true, cases: inOne},
	}
}

func setupNames() (names []string) {
	for _, s := range setups() {
		names = append(names, s.name)
	}
	return names
}

// testCase measures one thing, ours and bare, a round at a time.
type testCase struct {
	name       string
	ours, bare func(ctx context.Context, r *round) (reading, error)
}

// round is what a case needs to know.
type round struct {
	*env
	load, trips int
}

var cases = []testCase{
	{"idle", ourIdle, nil},
	{"submit", ourSubmit(slots, withRate), bareOp(opQuiet, slots, withRate)},
	{"submit1", ourSubmit(1, latency), bareOp(opQuiet, 1, latency)},
	{"jobs", ourJobs, bareJobs},
	{"runsync1", ourRunSync(1, latency), bareOp(opTrip, 1, latency)},
	{"runsync64", ourRunSync(slots, withRate), bareOp(opTrip, slots, withRate)},
	{"status", ourStatus, bareOp(opRead, 1, latency)},
	{"cancel", ourCancel, bareOp(opCancel, 1, latency)},
	{"flood", floodJobs(true), floodJobs(false)},
}

func caseNames() (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

func (s setup) has(name string) bool {
	return s.cases == nil || slices.Contains(s.cases, name)
}

// setup measures all wanted cases on an env of its own.
func (b *bench) setup(ctx context.Context, s setup) ([]row, error) {
	prepare, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	on, err := b.newEnv(prepare, envConfig{name: s.name, sync: s.sync, embedded: s.embedded, slots: slots, bare: true})
	if err != nil {
		return nil, err
	}
	defer on.close()
	r := &round{env: on, load: b.sizes.load, trips: b.sizes.trips}
	if s.sync != syncInterval {
		r.load = b.sizes.loadAlways
	}
	var rows []row
	for _, c := range cases {
		if !s.has(c.name) || !b.opts.wants(c.name) {
			continue
		}
		_, _ = fmt.Fprintf(b.progress, "%s: %s\n", s.name, c.name)
		got, err := b.measure(ctx, c, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, rowsOf(s.name, c.name, got)...)
	}
	return rows, nil
}

// pair is one round: the bare pipeline, then ours.
type pair struct{ bare, ours reading }

// measure runs the rounds, after a round that warms up and is thrown away.
func (b *bench) measure(ctx context.Context, c testCase, r *round) ([]pair, error) {
	pairs := make([]pair, 0, b.sizes.rounds)
	for i := range b.sizes.rounds + 1 {
		var p pair
		var err error
		if c.bare != nil {
			if p.bare, err = step(ctx, c.bare, r); err != nil {
				return nil, fmt.Errorf("bare: %w", err)
			}
		}
		if p.ours, err = step(ctx, c.ours, r); err != nil {
			return nil, err
		}
		if i > 0 {
			pairs = append(pairs, p)
		}
	}
	return pairs, nil
}

func step(ctx context.Context, do func(context.Context, *round) (reading, error), r *round) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	return do(ctx, r)
}

// withRate is a sample of many at once.
func withRate(s sample) reading {
	return append(reading{{"rate", perSecond, s.rate()}}, latency(s)...)
}

const perSecond = "/s"

// bareOp has the bare publisher do an operation. What is left in the queue by
// a submission, the bare consumer works off before the round is over.
func bareOp(op string, callers int, read func(sample) reading) func(context.Context, *round) (reading, error) {
	return func(ctx context.Context, r *round) (reading, error) {
		return r.metered(true, callers, read, func(n int) (sample, error) {
			got, err := r.publisher().do(ctx, order{Op: op, N: n, Callers: callers})
			if err == nil && op != opQuiet {
				err = r.bare.drained(ctx, bareEndpoint)
			}
			return got, err
		}, func() error { return r.bare.empty(ctx, bareEndpoint) })
	}
}

// metered is one round: so many operations, what they took, and, if there are
// several callers, the CPU time that they cost each process. Then clean.
func (r *round) metered(bare bool, callers int, read func(sample) reading, do func(n int) (sample, error), clean func() error) (reading, error) {
	n := r.trips
	if callers > 1 {
		n = r.load
	}
	before := r.usage(bare)
	s, err := do(n)
	if err != nil {
		return nil, err
	}
	got := read(s)
	if callers > 1 {
		got = append(got, r.cost(n, before, r.usage(bare))...)
	}
	return got, clean()
}

// cost is the CPU time between two usages.
func (r *round) cost(n int, before, after map[string]time.Duration) (got reading) {
	var system float64
	for _, part := range []string{"server", "api", "worker", "client"} {
		per := (after[part] - before[part]).Seconds() * 1000 / float64(n)
		if part != "client" {
			system += per
		}
		got = got.with("cpu "+part, perThousand, per)
	}
	return got.with("cpu without client", perThousand, system)
}

const perThousand = "s per 1000"

func ourIdle(_ context.Context, r *round) (reading, error) {
	var got reading
	for _, c := range r.children {
		switch c.role {
		case roleServer, roleAPI, roleEmbedded, roleWorker:
			got = got.with("rss "+c.role, "MB", gauge.Resident(c.pid))
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
			got, err := load(ctx, n, callers, func(context.Context, int) error { return r.http.runSync() })
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
func (s *env) submitted(ctx context.Context, n int) ([]job.ID, error) {
	ids := make([]job.ID, n)
	_, err := load(ctx, n, slots, func(_ context.Context, i int) (err error) {
		ids[i], err = s.http.run(quietEndpoint)
		return err
	})
	return ids, err
}
