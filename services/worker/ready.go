package worker

import (
	"cmp"
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
	// awayTimeout is how long a server may refuse connections, or answer that it is not
	// ready, before it counts as down. It is longer than a short interruption.
	awayTimeout = 2 * time.Second
	// silenceTimeout is how long it may give no answer. A server that computes may be slow
	// to answer, and if it counted as down its jobs would run again.
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
	since   time.Time // of the first probe that failed; zero: the last one succeeded
	refused time.Time // of the first of those in a row that were refused; zero: the last was not
}

// observe returns true if the server is down after this probe.
func (d *downtime) observe(seen health, now time.Time) (down bool) {
	if seen == healthy {
		*d = downtime{}
		return false
	}
	if d.since.IsZero() {
		d.since = now
	}
	switch {
	case seen == silent:
		d.refused = time.Time{}
	case d.refused.IsZero():
		d.refused = now
	}
	return now.Sub(d.since) >= silenceTimeout || seen == away && now.Sub(d.refused) >= awayTimeout
}

// whileReady runs work while the server is ready: again each time that it is back, until
// ctx ends, work returns by itself, or drained holds. work's context ends when the server is
// down.
func (u *upstream) whileReady(ctx context.Context, work func(context.Context) error, drained func() bool) error {
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
		if !<-down || err != nil || ctx.Err() != nil || drained() {
			return err
		}
	}
}

// awaitReady waits until the server is ready, or ctx ends: then it returns false.
func (u *upstream) awaitReady(ctx context.Context) bool {
	for before := ""; ; {
		seen, why := u.checkHealth(ctx)
		switch seen {
		case healthy:
			u.log.InfoContext(ctx, "the model server is ready")
			return true
		case away, silent:
			u.tryWake(ctx)
		}
		if why != before {
			u.log.InfoContext(ctx, "waiting for the model server", "address", u.base.Host, "why", why)
			before = why
		}
		if !u.waitForProbe(ctx) {
			return false
		}
	}
}

// watch probes the server. It returns true once the server is down, false when ctx ends.
func (u *upstream) watch(ctx context.Context) bool {
	var d downtime
	for u.waitForProbe(ctx) {
		if u.asleep.Load() {
			d = downtime{}
			continue
		}
		seen, why := u.checkHealth(ctx)
		if ctx.Err() == nil && d.observe(seen, time.Now()) {
			u.log.WarnContext(ctx, "the model server is down, no more jobs are taken", "why", why)
			return true
		}
	}
	return false
}

// waitForProbe waits until the next probe is due: after probeInterval, or at once after a
// probeSignal. It returns false if ctx ended.
func (u *upstream) waitForProbe(ctx context.Context) bool {
	next := time.NewTimer(probeInterval)
	defer next.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-u.probeSignal:
	case <-next.C:
	}
	return ctx.Err() == nil
}

// checkHealth is one probe: it asks for the health path, and for the list of models if the
// server has no health path and the user named none. why is what it met, if that is not
// healthy.
func (u *upstream) checkHealth(ctx context.Context) (seen health, why string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := cmp.Or(u.health, pathHealth)
	status, why := u.statusOf(ctx, path)
	if status == http.StatusNotFound && u.health == "" {
		path = pathModels
		status, why = u.statusOf(ctx, path)
	}
	why = "GET " + path + ": " + why
	switch {
	case status >= 200 && status <= 299:
		return healthy, ""
	case status == 0 && ctx.Err() != nil:
		return silent, why
	}
	return away, why
}

// statusOf returns the HTTP status of a GET, 0 if no answer came, and either in words.
func (u *upstream) statusOf(ctx context.Context, path string) (status int, text string) {
	request, err := u.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, "the path is wrong"
	}
	answer, err := u.client.Do(request)
	if err != nil {
		return 0, withoutAddress(err).Error()
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, answer.Status
}
