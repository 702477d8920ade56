package main

import (
	"context"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"flightline/e2e/gauge"
	"flightline/shared/retry"
)

// The metrics of a turn.
const (
	cyclesPerSecond = "cycles/s"
	cpuPer1000      = "CPU s per 1000 jobs"
	openP50         = "end to end p50 ms at 10/s"
	openP99         = "end to end p99 ms at 10/s"
	runSyncP50      = "runsync p50 ms, 1 in flight"
	runPerSecond    = "/run per s, 64 connections"
	memory          = "RSS MB"
)

// measure takes a turn's figures.
func (t *target) measure(ctx context.Context, n int) error {
	if t.stats != "" {
		if err := t.measureJobs(ctx, n); err != nil {
			return err
		}
	}
	runs := *t.client
	if t.build != "" {
		if err := t.measureRunSync(ctx); err != nil {
			return err
		}
		runs.base = "/v2/" + quietEndpoint
	} else if t.stats != "" {
		return nil // what a peer submits would be worked on beside
	}
	const duration = 2 * time.Second
	began := time.Now()
	l, err := closed(ctx, connections, duration, func() error {
		_, err := runs.submit()
		return err
	})
	t.put(runPerSecond, float64(len(l.took))/time.Since(began).Seconds())
	return err
}

func (t *target) put(metric string, value float64) { t.bench.figures.add(t.name, metric, value) }

// measureJobs measures whole cycles after some to warm up, then single jobs.
func (t *target) measureJobs(ctx context.Context, n int) error {
	const warmUp, share, rate, duration = 500, 20, 10, 6 * time.Second
	if _, err := t.cycles(ctx, max(warmUp, n/share)); err != nil {
		return err
	}
	before := t.cpu()
	took, err := t.cycles(ctx, n)
	if err != nil {
		return err
	}
	t.put(cyclesPerSecond, float64(n)/took.Seconds())
	t.put(cpuPer1000, (t.cpu()-before).Seconds()/float64(n)*1000)
	t.put(memory, t.resident())
	l, err := t.open(ctx, rate, duration)
	if err != nil {
		return err
	}
	t.put(openP50, l.quantile(0.5))
	t.put(openP99, l.quantile(0.99))
	return nil
}

func (t *target) measureRunSync(ctx context.Context) error {
	const duration = 2 * time.Second
	l, err := closed(ctx, 1, duration, func() error {
		a, err := t.client.call(fasthttp.MethodPost, t.client.base+"/runsync", submission)
		if err == nil && a.Status != "COMPLETED" {
			err = fmt.Errorf("job %s is %s, want COMPLETED", a.ID, a.Status)
		}
		return err
	})
	t.put(runSyncP50, l.quantile(0.5))
	return err
}

// scale takes the figures that need minutes, once.
func (b *bench) scale(ctx context.Context) error {
	if b.long > 0 {
		if err := b.dev(ctx, b.steady); err != nil {
			return fmt.Errorf("long: %w", err)
		}
	}
	if b.deep > 0 {
		if err := b.dev(ctx, b.drain); err != nil {
			return fmt.Errorf("deep: %w", err)
		}
	}
	if b.endpoints > 0 {
		if err := b.dev(ctx, b.crowd); err != nil {
			return fmt.Errorf("endpoints: %w", err)
		}
	}
	return nil
}

// The figures of scale.
const (
	longMinute  = "1000 jobs/s, retention 60 s: RSS MB after a minute"
	longEnd     = "the same at the end"
	longP99     = "the same: p99 ms of the first minute"
	longP99Last = "the same: p99 ms of the last minute"
	deepQueued  = "RSS MB, all queued"
	deepMost    = "RSS MB at most while they are worked off"
	deepRate    = "jobs/s while they are worked off"
	crowdIdle   = "many endpoints, idle: RSS MB"
	crowdStop   = "many endpoints: SIGTERM to exit s"
)

// dev starts a lazy dev for a case of scale.
func (b *bench) dev(ctx context.Context, measure func(context.Context, *target, *child) error) error {
	t := &target{bench: b, name: scaleName, build: b.flightline, dir: b.dir + "/scale"}
	defer t.stop()
	if err := mkdir(t.dir); err != nil {
		return err
	}
	dev, err := t.startDev(ctx, "interval")
	if err != nil {
		return err
	}
	return measure(ctx, t, dev)
}

// steady takes 1000 jobs/s and forgets each after a minute.
func (b *bench) steady(ctx context.Context, t *target, dev *child) error {
	const rate, retention, part = 1000, time.Minute, time.Minute
	if err := t.client.createEndpoint(busyEndpoint, retention); err != nil {
		return err
	}
	if err := t.startWorker(ctx); err != nil {
		return err
	}
	for passed := time.Duration(0); passed < b.long; passed += part {
		l, err := t.open(ctx, rate, min(part, b.long-passed))
		if err != nil {
			return err
		}
		p50, p99, rss := l.quantile(0.5), l.quantile(0.99), gauge.Resident(dev.cmd.Process.Pid)
		b.log.InfoContext(ctx, "long", "until", passed+part, "p50_ms", p50, "p99_ms", p99, "rss_mb", rss, "load_average", gauge.LoadAverage())
		if passed == 0 {
			t.put(longMinute, rss)
			t.put(longP99, p99)
		}
		if passed+part >= b.long {
			t.put(longEnd, rss)
			t.put(longP99Last, p99)
		}
	}
	return nil
}

// settle lets a process give back what it no longer needs: 5 s.
func settle(ctx context.Context) error { return retry.Sleep(ctx, 5*time.Second) }

// drain queues many jobs and works them off.
func (b *bench) drain(ctx context.Context, t *target, dev *child) error {
	if err := t.client.createEndpoint(busyEndpoint, 0); err != nil {
		return err
	}
	submit := func(int) error {
		_, err := t.client.submit()
		return err
	}
	if err := each(ctx, b.deep, submit); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	t.put(deepQueued, gauge.Resident(dev.cmd.Process.Pid))
	began, most := time.Now(), 0.0
	if err := t.startWorker(ctx); err != nil {
		return err
	}
	const lookInterval = 100 * time.Millisecond
	for {
		most = max(most, gauge.Resident(dev.cmd.Process.Pid))
		done, err := t.worked()
		if err != nil {
			return err
		}
		if done >= b.deep {
			break
		}
		if err := retry.Sleep(ctx, lookInterval); err != nil {
			return err
		}
	}
	t.put(deepMost, most)
	t.put(deepRate, float64(b.deep)/time.Since(began).Seconds())
	return nil
}

// crowd makes many endpoints, lets them idle, and stops.
func (b *bench) crowd(ctx context.Context, t *target, dev *child) error {
	for i := range b.endpoints {
		if err := t.client.createEndpoint(fmt.Sprintf("idle-%d", i), 0); err != nil {
			return err
		}
	}
	const looks = 3
	for range looks { // 15 s
		if err := settle(ctx); err != nil {
			return err
		}
	}
	t.put(crowdIdle, gauge.Resident(dev.cmd.Process.Pid))
	took, err := dev.end()
	t.put(crowdStop, took.Seconds())
	return err
}
