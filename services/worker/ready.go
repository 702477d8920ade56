package worker

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	pathHealth = "/health"
	pathModels = "/v1/models"

	// probeInterval is the pause between two probes.
	probeInterval = time.Second
	// probeTimeout bounds one probe.
	probeTimeout = 10 * time.Second
	// awayTimeout is how long a server may refuse, or answer that it is not ready,
	// before it counts as down: longer than a hiccup.
	awayTimeout = 2 * time.Second
	// silenceTimeout is how long it may not answer at all: a server that computes may
	// be slow to, and its jobs would begin again.
	silenceTimeout = 30 * time.Second
)

// health is what a probe shows.
type health int

const (
	healthy health = iota
	away           // it refuses, or says that it is not ready
	silent         // it did not answer in time
)

// downtime decides when a server counts as down.
type downtime struct {
	since time.Time // of the first probe that failed; zero: the last one succeeded
}

// observe returns true if the server is down after this probe.
func (d *downtime) observe(seen health, now time.Time) (down bool) {
	if seen == healthy {
		d.since = time.Time{}
		return false
	}
	if d.since.IsZero() {
		d.since = now
	}
	if seen == silent {
		return now.Sub(d.since) >= silenceTimeout
	}
	return now.Sub(d.since) >= awayTimeout
}

// whileReady runs work while the server is ready: again each time that it is back, until
// ctx ends or work returns by itself. work's context ends when the server is down.
func (u *upstream) whileReady(ctx context.Context, work func(context.Context) error) error {
	for {
		if !u.awaitReady(ctx) {
			return nil
		}
		ready, stop := context.WithCancel(ctx)
		down := make(chan bool, 1)
		go func() { // ends with ready
			down <- u.watch(ready)
			stop()
		}()
		err := work(ready)
		stop()
		if !<-down || err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// awaitReady waits until the server is ready, or ctx ends: then it returns false.
func (u *upstream) awaitReady(ctx context.Context) bool {
	for first := true; ; first = false {
		switch u.look(ctx) {
		case healthy:
			u.log.InfoContext(ctx, "the model server is ready")
			return true
		case away, silent:
		}
		if first {
			u.log.InfoContext(ctx, "waiting for the model server")
		}
		if !u.pause(ctx) {
			return false
		}
	}
}

// watch returns true once the server is down, false when ctx ends.
func (u *upstream) watch(ctx context.Context) bool {
	var d downtime
	for u.pause(ctx) {
		seen := u.look(ctx)
		if ctx.Err() == nil && d.observe(seen, time.Now()) {
			u.log.WarnContext(ctx, "the model server is down, no more jobs are taken")
			return true
		}
	}
	return false
}

// pause waits for the next probe. It returns false if ctx ended.
func (u *upstream) pause(ctx context.Context) bool {
	next := time.NewTimer(probeInterval)
	defer next.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-u.probe:
	case <-next.C:
	}
	return ctx.Err() == nil
}

// probeNow ends the pause before the next probe.
func (u *upstream) probeNow() {
	select {
	case u.probe <- struct{}{}:
	default:
	}
}

// look asks the server how it is.
func (u *upstream) look(ctx context.Context) health {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := u.health
	if path == "" {
		path = pathHealth
	}
	status := u.get(ctx, path)
	if status == http.StatusNotFound && u.health == "" {
		status = u.get(ctx, pathModels)
	}
	switch {
	case status >= 200 && status <= 299:
		return healthy
	case status == 0 && ctx.Err() != nil:
		return silent
	}
	return away
}

// get returns the status of an answer, 0 without one.
func (u *upstream) get(ctx context.Context, path string) int {
	request, err := u.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0
	}
	answer, err := u.client.Do(request)
	if err != nil {
		u.log.DebugContext(ctx, "no answer of the model server", "path", path)
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode
}
