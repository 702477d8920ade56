package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
)

// sample is what one round of one operation took.
type sample struct {
	N       int           `json:"n"`
	Elapsed time.Duration `json:"elapsed"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
}

// rate is operations per second.
func (s sample) rate() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.N) / s.Elapsed.Seconds()
}

// load does op n times from that many callers at once and returns what it
// took, or the first error.
func load(ctx context.Context, n, callers int, op func(ctx context.Context, i int) error) (sample, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range callers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				at := time.Now()
				if err := op(ctx, i); err != nil {
					return err
				}
				took[i] = time.Since(at)
			}
		})
	}
	if err := g.Wait(); err != nil {
		return sample{}, err
	}
	return sampleOf(took, time.Since(began)), nil
}

func sampleOf(took []time.Duration, elapsed time.Duration) sample {
	slices.Sort(took)
	return sample{N: len(took), Elapsed: elapsed, P50: quantile(took, 0.5), P99: quantile(took, 0.99)}
}

// quantile of sorted values: the smallest that at least the share q does
// not exceed. 0 if there are none.
func quantile[T any](sorted []T, q float64) T {
	var none T
	if len(sorted) == 0 {
		return none
	}
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// metric is one number of a reading.
type metric struct {
	name, unit string
	value      float64
}

// reading is what one round of a case found.
type reading []metric

func (r reading) value(name string) (float64, bool) {
	for _, m := range r {
		if m.name == name {
			return m.value, true
		}
	}
	return 0, false
}

func (r reading) with(name, unit string, value float64) reading {
	return append(r, metric{name, unit, value})
}

const milliseconds = "ms"

// latency is a sample's quantiles.
func latency(s sample) reading {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return reading{}.with("p50", milliseconds, ms(s.P50)).with("p99", milliseconds, ms(s.P99))
}

// caller is the load driver's client. It costs far less than net/http, on
// cores that the system under test needs.
type caller struct {
	host *fasthttp.HostClient
	key  string
}

// body is what every submission sends.
var body = []byte(`{"input":` + string(payload) + `}`)

func newCaller(address, key string) *caller {
	const patience = 30 * time.Second
	return &caller{key: "Bearer " + key, host: &fasthttp.HostClient{
		Addr: address, MaxConns: 256, ReadTimeout: patience, WriteTimeout: patience,
		MaxIdleConnDuration: 100 * time.Second,
	}}
}

// job calls an operation and returns the job in its answer.
func (c *caller) job(method, endpoint, operation string, id job.ID) (job.ID, job.Status, error) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	if err := c.call(method, endpoint, operation, id, resp); err != nil {
		return "", "", err
	}
	var got struct {
		ID     job.ID     `json:"id"`
		Status job.Status `json:"status"`
	}
	if err := json.Unmarshal(resp.Body(), &got); err != nil {
		return "", "", fmt.Errorf("%s: %w", operation, err)
	}
	return got.ID, got.Status, nil
}

// call has resp filled with the answer, which is to be 200.
func (c *caller) call(method, endpoint, operation string, id job.ID, resp *fasthttp.Response) error {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetMethod(method)
	req.Header.Set("Authorization", c.key)
	path := "/v2/" + endpoint + "/" + operation
	if id != "" {
		path += "/" + string(id)
	}
	req.SetRequestURI("http://" + c.host.Addr + path)
	if method == fasthttp.MethodPost {
		req.Header.SetContentType("application/json")
		if id == "" {
			req.SetBodyRaw(body)
		}
	}
	if err := c.host.Do(req, resp); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("%s: %d: %s", path, resp.StatusCode(), resp.Body())
	}
	return nil
}

// submit is run for a caller that does not care for the job's id.
func (c *caller) submit(endpoint string) error {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	return c.call(fasthttp.MethodPost, endpoint, "run", "", resp)
}

func (c *caller) run(endpoint string) (job.ID, error) {
	id, _, err := c.job(fasthttp.MethodPost, endpoint, "run", "")
	return id, err
}

// runSync has the worker run a job, and fails unless that completed.
func (c *caller) runSync() error {
	id, status, err := c.job(fasthttp.MethodPost, busyEndpoint, "runsync", "")
	if err == nil && status != job.Completed {
		err = fmt.Errorf("job %s is %s, want COMPLETED", id, status)
	}
	return err
}

func (c *caller) status(endpoint string, id job.ID) error {
	_, _, err := c.job(fasthttp.MethodGet, endpoint, "status", id)
	return err
}

func (c *caller) cancel(endpoint string, id job.ID) error {
	_, _, err := c.job(fasthttp.MethodPost, endpoint, "cancel", id)
	return err
}
