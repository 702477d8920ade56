package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flightline/e2e/chaos/ledger"
)

// callers submit jobs and follow each to its end, through whatever happens to
// the servers.
type callers struct {
	world       *world
	http        *http.Client
	urls        []string // of the servers, tried in turn
	stopReading context.CancelFunc

	next    atomic.Int64  // the number of the next job
	open    atomic.Int64  // jobs that were accepted and have not ended
	looking chan struct{} // a slot for each caller that follows a job
	calls   sync.WaitGroup
	mu      sync.Mutex
	errors  map[string]int // of submissions that were not answered 200, by code
	slowest time.Duration  // acceptance, all tries included
}

const (
	// submitTimeout bounds all tries of one submission.
	submitTimeout = 3 * time.Minute
	// callTimeout bounds one call, holdTime what the server may hold it.
	callTimeout, holdTime = 15 * time.Second, 10 * time.Second
	// maxFollowed is how many jobs are followed at a time: less than the limit of
	// an endpoint.
	maxFollowed = 300
	// hiddenTime is how long a job may be unknown to the servers before its caller
	// gives up. That it was unknown is a violation in any case.
	hiddenTime = 10 * time.Second
	// retryDelay is the pause after a failed call, at first; it doubles up to
	// maxRetryDelay.
	retryDelay, maxRetryDelay = 100 * time.Millisecond, time.Second
)

func newCallers(w *world, urls ...string) *callers {
	return &callers{
		world: w, urls: urls, errors: map[string]int{}, looking: make(chan struct{}, maxFollowed),
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
	}
}

// submit submits a job until it is accepted or ctx ends, and follows it in the
// background.
func (c *callers) submit(ctx context.Context, in ledger.Input) error {
	in.N = int(c.next.Add(1))
	if err := c.accepted(ctx, in); err != nil {
		return err
	}
	c.open.Add(1)
	c.calls.Go(func() {
		defer c.open.Add(-1)
		c.looking <- struct{}{}
		defer func() { <-c.looking }()
		c.follow(ctx, in.N)
	})
	return nil
}

// steady submits rate jobs a second for d.
func (c *callers) steady(ctx context.Context, rate int, d time.Duration, input func(n int) ledger.Input) {
	c.every(ctx, time.Second/time.Duration(rate), d, input)
}

// every submits a job in each interval for d without waiting for the answers,
// and returns once all jobs are accepted or were given up.
func (c *callers) every(ctx context.Context, interval, d time.Duration, input func(n int) ledger.Input) {
	var calls sync.WaitGroup
	defer calls.Wait()
	began := time.Now()
	for i := 0; ; i++ {
		due := time.Duration(i) * interval
		if due >= d || !wait(ctx, time.Until(began.Add(due))) {
			return
		}
		calls.Go(func() { _ = c.submit(ctx, input(i)) }) // the book has what was not accepted
	}
}

// saturate submits jobs for d, as fast as so many callers can one after the
// other, while fewer than backlog jobs wait or run.
func (c *callers) saturate(ctx context.Context, callers, backlog int, d time.Duration, input ledger.Input) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for ctx.Err() == nil {
				if c.open.Load() >= int64(backlog) {
					wait(ctx, pollInterval)
					continue
				}
				_ = c.submit(context.WithoutCancel(ctx), input) // the book has what was not accepted
			}
		})
	}
	calls.Wait()
}

// accepted submits a job under its key until a server answers 200.
func (c *callers) accepted(ctx context.Context, in ledger.Input) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	sent := time.Now()
	c.world.book.update(in.N, func(j *job) { j.sent = sent })
	body, err := json.Marshal(map[string]any{"input": in})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	key := fmt.Sprintf("%d-%d", c.world.cfg.Seed, in.N)
	for try, pause := 0, retryDelay; ; try, pause = try+1, min(2*pause, maxRetryDelay) {
		id, code, err := c.try(ctx, c.url(in.N+try), key, body)
		c.world.book.update(in.N, func(j *job) {
			if id != "" && j.id != "" && id != j.id && !slices.Contains(j.others, id) {
				j.others = append(j.others, id)
			}
			if j.id == "" {
				j.id = id
			}
			if err == nil {
				j.accepted, j.status = time.Now(), "accepted"
			}
		})
		if err == nil {
			c.mu.Lock()
			c.slowest = max(c.slowest, time.Since(sent))
			c.mu.Unlock()
			return nil
		}
		c.mu.Lock()
		c.errors[code]++
		c.mu.Unlock()
		if !wait(ctx, pause) {
			return fmt.Errorf("job %d is not accepted: %w", in.N, err)
		}
	}
}

// follow waits for the end of a job, until ctx ends.
func (c *callers) follow(ctx context.Context, n int) {
	var id string
	c.world.book.update(n, func(j *job) { id = j.id })
	for try, pause := n, retryDelay; ; try, pause = try+1, min(2*pause, maxRetryDelay) {
		a, err := c.look(ctx, id, try, holdTime)
		over := false
		c.world.book.update(n, func(j *job) { over = j.seen(a, err, time.Now()) })
		if err == nil || errors.Is(err, errGone) {
			pause = retryDelay
		}
		if over || !wait(ctx, pause) {
			return
		}
	}
}

// seen notes an answer about the job, and reports whether the job is over.
func (j *job) seen(a answer, err error, now time.Time) (over bool) {
	switch {
	case errors.Is(err, errGone):
		if j.status = "404"; j.hidden.IsZero() {
			j.hidden, j.hiding = now, err.Error()
		}
		over = now.Sub(j.hidden) > hiddenTime
	case err != nil:
		j.status = err.Error()
	default:
		j.status, j.by = a.Status, a.Output.By
		over = terminal(a.Status)
	}
	if over {
		j.ended = now
	}
	return over
}
