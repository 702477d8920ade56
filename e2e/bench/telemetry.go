package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	telemetryCase = "telemetry"
	// overheadAim is what metrics and traces of everything may cost together.
	overheadAim = 1.05
	// turnsPerRound is how many turns the jobs of a round are divided into.
	turnsPerRound = 8
	// scrapeEvery is how often metrics are scraped.
	scrapeEvery = 5 * time.Second
	// spansOfJob are the request and the process.
	spansOfJob = 2
	// sentWithin is how long after their job spans may come.
	sentWithin = 30 * time.Second
)

// variant is an API instance and a worker on an endpoint of their own. All of
// them share a server.
type variant struct {
	name            string
	metrics, traces bool
	share           string // of the traces that are recorded; "" means all

	endpoint    string
	http        *caller
	api, worker *child
	scraped     string // where its metrics are

	busy, scrapeAt time.Duration // how long it was measured, and is to be until the next scrape
}

func variants() []*variant {
	return []*variant{
		{name: "off"},
		{name: "metrics", metrics: true},
		{name: "traces", traces: true},
		{name: "both", metrics: true, traces: true},
		{name: "metrics and a tenth of the traces", metrics: true, traces: true, share: "0.1"},
	}
}

// telemetrySite is a server and the variants, the one without anything first.
type telemetrySite struct {
	*site
	variants  []*variant
	collector *child
	traced    int // jobs of the variants with traces of everything
}

// telemetry measures whole jobs with and without metrics and traces, in many
// short turns. The figures of each variant, over all its turns, stand beside
// those of the one that has neither.
func (b *bench) telemetry(ctx context.Context) ([]row, error) {
	prepare, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	on, err := b.newTelemetrySite(prepare)
	if err != nil {
		return nil, err
	}
	defer on.close()
	var rows []row
	for _, c := range []struct {
		name string
		do   func(context.Context, *variant, int) error
	}{{"jobs", on.run}, {"runsync", on.runSync}} {
		_, _ = fmt.Fprintf(b.progress, "%s: %s\n", telemetryCase, c.name)
		turns, err := on.turns(ctx, b.sizes.rounds*turnsPerRound, b.sizes.load/turnsPerRound, c.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		for i, v := range on.variants[1:] {
			rows = append(rows, besideOff(c.name+", "+v.name, turns[0], turns[i+1])...)
		}
	}
	lost, err := on.lost(ctx)
	return append(rows, row{Setup: telemetryCase, Case: "spans", Metric: "lost", Unit: "of " + fmt.Sprint(on.traced*spansOfJob), Ours: lost, Rounds: 1}), err
}

// turns are n turns of all variants, after one that is thrown away, by variant.
// Each time another variant begins.
func (s *telemetrySite) turns(ctx context.Context, n, jobs int, do func(context.Context, *variant, int) error) ([][]spent, error) {
	all := make([][]spent, len(s.variants))
	for i := range n + 1 {
		for k := range s.variants {
			at := (i + k) % len(s.variants)
			got, err := s.turn(ctx, s.variants[at], jobs, do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.variants[at].name, err)
			}
			if i > 0 {
				all[at] = append(all[at], got)
			}
		}
	}
	return all, nil
}

func (s *telemetrySite) turn(ctx context.Context, v *variant, jobs int, do func(context.Context, *variant, int) error) (spent, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	before, began := s.used(v), time.Now()
	scraped := v.scrape(ctx)
	err := do(ctx, v, jobs)
	if failed := <-scraped; err == nil {
		err = failed
	}
	if err == nil {
		err = s.drained(ctx, v.endpoint)
	}
	got := s.used(v)
	for i := range got.cpu {
		got.cpu[i] -= before.cpu[i]
	}
	got.jobs, got.took = jobs, time.Since(began)
	v.busy += got.took
	if v.traces && v.share == "" {
		s.traced += jobs
	}
	return got, err
}

// used is what the processes of a variant have used so far.
func (s *telemetrySite) used(v *variant) spent {
	return spent{cpu: [...]time.Duration{threadTime(s.child(roleServer).pid), threadTime(v.api.pid), threadTime(v.worker.pid)}}
}

func (s *telemetrySite) run(ctx context.Context, v *variant, jobs int) error {
	_, err := load(ctx, jobs, slots, func(context.Context, int) error { return v.http.submit(v.endpoint) })
	return err
}

func (s *telemetrySite) runSync(ctx context.Context, v *variant, jobs int) error {
	_, err := load(ctx, jobs, slots, func(context.Context, int) error { return v.http.runSync(v.endpoint) })
	return err
}

// scrape reads the variant's metrics, if it has been busy for long enough since
// the last time.
func (v *variant) scrape(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if !v.metrics || v.busy < v.scrapeAt {
		done <- nil
		return done
	}
	v.scrapeAt = v.busy + scrapeEvery
	go func() { done <- get(ctx, v.scraped) }()
	return done
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// lost is how many spans did not come, if they get the time to.
func (s *telemetrySite) lost(ctx context.Context) (float64, error) {
	tick := time.NewTicker(scrapeEvery / 10)
	defer tick.Stop()
	for end := time.Now().Add(sentWithin); ; {
		came, err := s.collector.do(ctx, order{Op: "spans"})
		if missing := s.traced*spansOfJob - came.N; err != nil || missing <= 0 || time.Now().After(end) {
			return float64(missing), err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
