package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"flightline/shared/retry"
)

const (
	connections = 64
	workTimeout = 2 * time.Minute
	inputBytes  = 256
)

var submission = []byte(`{"input":{"prompt":"` + strings.Repeat("a", inputBytes) + `"}}`)

// client drives the HTTP API of a target. It costs less than net/http, on cores that the
// system under test needs.
type client struct {
	host *fasthttp.HostClient
	// base is the path before /run and /status.
	base string
}

func newClient(address, base string) *client {
	const timeout, most = 30 * time.Second, 1024
	return &client{base: base, host: &fasthttp.HostClient{
		Addr: address, MaxConns: most, ReadTimeout: timeout, WriteTimeout: timeout, MaxConnWaitTimeout: timeout, MaxIdleConnDuration: time.Minute,
	}}
}

// answer is what the driver reads of an answer.
type answer struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Completed int    `json:"completed"`
}

// call returns the answer, which is to be 200 or 201. What an echo answers is not looked at.
func (c *client) call(method, path string, body []byte) (a answer, err error) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI("http://" + c.host.Addr + path)
	request.Header.SetMethod(method)
	request.Header.Set(fasthttp.HeaderAuthorization, "Bearer "+key)
	if body != nil {
		request.Header.SetContentType("application/json")
		request.SetBodyRaw(body)
	}
	if err := c.host.Do(request, response); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	if code := response.StatusCode(); code != fasthttp.StatusOK && code != fasthttp.StatusCreated {
		return a, fmt.Errorf("%s: %d: %s", path, code, response.Body())
	}
	if err := json.Unmarshal(response.Body(), &a); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func (c *client) createEndpoint(id string, retention time.Duration) error {
	spec := map[string]any{"id": id}
	if retention > 0 {
		spec["retentionMs"] = retention.Milliseconds()
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = c.call(fasthttp.MethodPost, "/v1/endpoints", body)
	return err
}

func (c *client) submit() (string, error) {
	a, err := c.call(fasthttp.MethodPost, c.base+"/run", submission)
	return a.ID, err
}

func (c *client) completed(id string) (bool, error) {
	a, err := c.call(fasthttp.MethodGet, c.base+"/status/"+id, nil)
	return a.Status == "COMPLETED", err
}

// worked is how many jobs the workers have completed.
func (t *target) worked() (int, error) {
	if t.counter == nil {
		t.counter = newClient(t.stats, "")
	}
	a, err := t.counter.call(fasthttp.MethodGet, "/stats", nil)
	return a.Completed, err
}

// await waits until the workers have completed so many jobs.
func (t *target) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	for {
		done, err := t.worked()
		if err != nil || done >= n {
			return err
		}
		if err := retry.Sleep(ctx, pollInterval); err != nil {
			return fmt.Errorf("%d of %d jobs are done: %w", done, n, err)
		}
	}
}

// latencies are collected by many callers.
type latencies struct {
	mu   sync.Mutex
	took []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d)
}

// quantile in milliseconds: what at least the share q of them does not exceed.
func (l *latencies) quantile(q float64) float64 {
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	i := min(int(q*float64(len(l.took))), len(l.took)-1)
	return float64(l.took[i].Microseconds()) / 1000
}

// each calls op with 0 to n-1 over all connections.
func each(ctx context.Context, n int, op func(i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range connections {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := errors.Join(ctx.Err(), op(int(i))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// cycles submits n jobs, waits until they are worked off, and fetches each result once. It
// returns how long that took.
func (t *target) cycles(ctx context.Context, n int) (time.Duration, error) {
	before, err := t.worked()
	if err != nil {
		return 0, err
	}
	ids, began := make([]string, n), time.Now()
	err = each(ctx, n, func(i int) (err error) {
		ids[i], err = t.client.submit()
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := t.await(ctx, before+n); err != nil {
		return 0, err
	}
	err = each(ctx, n, func(i int) error { return t.wait(ctx, ids[i], pollInterval, pollInterval) })
	return time.Since(began), err
}

// wait polls a job until it is completed, with pauses that double up to a bound.
func (t *target) wait(ctx context.Context, id string, pause, longest time.Duration) error {
	for {
		done, err := t.client.completed(id)
		if err != nil || done {
			return err
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// open submits that many jobs a second whether or not they are done, and returns the
// times from each submission to a GET that shows the result.
func (t *target) open(ctx context.Context, rate int, duration time.Duration) (*latencies, error) {
	pause, longest := time.Millisecond, time.Millisecond
	if rate > 100 { // no storm of polls when jobs wait
		pause, longest = 4*time.Millisecond, 500*time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, duration+workTimeout)
	defer cancel()
	var l latencies
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range int(float64(rate) * duration.Seconds()) {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if err := retry.Sleep(ctx, time.Until(at)); err != nil {
			break // the group has the reason
		}
		g.Go(func() error {
			submitted := time.Now()
			id, err := t.client.submit()
			if err == nil {
				err = t.wait(ctx, id, pause, longest)
			}
			l.add(time.Since(submitted))
			return err
		})
	}
	return &l, g.Wait()
}

// closed calls op over so many connections for some time, and returns the latencies.
func closed(ctx context.Context, callers int, duration time.Duration, op func() error) (*latencies, error) {
	var l latencies
	g, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(duration)
	for range callers {
		g.Go(func() error {
			var took []time.Duration
			for time.Now().Before(end) {
				began := time.Now()
				if err := errors.Join(ctx.Err(), op()); err != nil {
					return err
				}
				took = append(took, time.Since(began))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.took = append(l.took, took...)
			return nil
		})
	}
	return &l, g.Wait()
}
