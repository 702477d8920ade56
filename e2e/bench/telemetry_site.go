package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"flightline/shared/endpoint"
)

// spent is what a turn took.
type spent struct {
	jobs int
	took time.Duration
	cpu  [3]time.Duration // of the server, the API and the worker
}

func (s spent) all() time.Duration { return s.cpu[0] + s.cpu[1] + s.cpu[2] }

// besideOff compares all turns of a variant with those of the one that tells
// nothing of itself.
func besideOff(name string, off, ours []spent) []row {
	one := func(metric, unit string, of func(spent) float64) row {
		var a, b float64
		for i := range off {
			a, b = a+of(off[i]), b+of(ours[i])
		}
		n := float64(len(off))
		r := row{Setup: telemetryCase, Case: name, Metric: metric, Unit: unit, Bare: a / n, Ours: b / n, Rounds: len(off)}
		if a > 0 {
			r.Ratio = b / a
		}
		return r
	}
	per := func(jobs int, d time.Duration) float64 { return d.Seconds() * 1000 / float64(jobs) }
	rows := []row{
		one("time", perThousand, func(s spent) float64 { return per(s.jobs, s.took) }),
		one("cpu", perThousand, func(s spent) float64 { return per(s.jobs, s.all()) }),
	}
	for i, part := range []string{"server", "api", "worker"} {
		rows = append(rows, one("cpu "+part, perThousand, func(s spent) float64 { return per(s.jobs, s.cpu[i]) }))
	}
	return append(rows, row{Setup: telemetryCase, Case: name, Metric: "cpu ratio ±", Ratio: uncertainty(off, ours), Rounds: len(off)})
}

// uncertainty is the standard error of the ratio of the CPU times.
func uncertainty(off, ours []spent) float64 {
	var base, sum, squares float64
	for i := range off {
		base += off[i].all().Seconds()
		d := (ours[i].all() - off[i].all()).Seconds()
		sum, squares = sum+d, squares+d*d
	}
	n := float64(len(off))
	if n < 2 || base == 0 {
		return 0
	}
	variance := max(0, squares-sum*sum/n) / (n - 1)
	return math.Sqrt(variance*n) / base
}

func (b *bench) newTelemetrySite(ctx context.Context) (_ *telemetrySite, err error) {
	s := &telemetrySite{site: &site{}, variants: variants()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	cfg := config{User: "bench", Password: rand.Text(), Key: "bench-" + rand.Text(), Dir: filepath.Join(b.dir, telemetryCase), Slots: slots}
	_, up, err := s.add(ctx, b, roleServer, "", cfg)
	if err != nil {
		return nil, err
	}
	cfg.NATS = up.NATS
	if s.collector, up, err = s.add(ctx, b, roleCollector, "", cfg); err != nil {
		return nil, err
	}
	all := "http://" + up.HTTP
	if _, up, err = s.add(ctx, b, roleCollector, "share", cfg); err != nil {
		return nil, err
	}
	share := "http://" + up.HTTP
	for i, v := range s.variants {
		own := cfg
		own.Metrics, own.Share = v.metrics, v.share
		switch {
		case v.share != "":
			own.OTLP = share
		case v.traces:
			own.OTLP = all
		}
		own.Endpoint = fmt.Sprintf("busy-%d", i)
		if err := s.start(ctx, b, v, own); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// start starts the processes of a variant, and makes its endpoint.
func (s *telemetrySite) start(ctx context.Context, b *bench, v *variant, cfg config) (err error) {
	var up ready
	if v.api, up, err = s.add(ctx, b, roleAPI, v.name, cfg); err != nil {
		return err
	}
	v.endpoint, v.http, v.scraped = cfg.Endpoint, newCaller(up.HTTP, cfg.Key), "http://"+up.Metrics+"/metrics"
	if s.q == nil { // the API has made the streams
		if err := s.connect(ctx, cfg); err != nil {
			return err
		}
	}
	e, err := s.reg.Endpoints.Create(ctx, endpoint.Endpoint{ID: v.endpoint, Created: time.Now()})
	if err != nil {
		return err
	}
	if err := s.q.CreateEndpoint(ctx, e); err != nil {
		return err
	}
	v.worker, _, err = s.add(ctx, b, roleWorker, v.name, cfg)
	return err
}

// add starts a child of a variant.
func (s *telemetrySite) add(ctx context.Context, b *bench, role, of string, cfg config) (*child, ready, error) {
	if b.opts.profiles != "" {
		cfg.Profile = filepath.Join(b.opts.profiles, telemetryCase+"-"+role+"-"+of+".pprof")
	}
	c, up, err := start(ctx, role, cfg)
	if err == nil {
		s.children = append(s.children, c)
	}
	return c, up, err
}
