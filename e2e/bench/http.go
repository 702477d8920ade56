package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"flightline/shared/job"
)

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

// runSync fails unless the job completed.
func (c *caller) runSync(endpoint string) error {
	id, status, err := c.job(fasthttp.MethodPost, endpoint, "runsync", "")
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
