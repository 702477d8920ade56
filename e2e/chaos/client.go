package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// client is a caller of the API; it writes down the answers.
type client struct {
	http  *http.Client
	apis  []string
	books *ledger
	fault func(format string, args ...any)

	mu      sync.Mutex
	slowest time.Duration // of the calls that do not wait for a job
}

// view is what any answer may hold.
type view struct {
	ID      string          `json:"id"`
	Status  string          `json:"status"`
	Output  json.RawMessage `json:"output"`
	Removed int64           `json:"removed"`
}

func newClient(apis []string, books *ledger, fault func(string, ...any)) *client {
	return &client{
		http: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		apis: apis, books: books, fault: fault,
	}
}

// call is an operation of a caller.
type call struct {
	op       kind
	api      int // which instance
	endpoint string
	path     string
	job      string // "" for a submission
	value    int64
	body     []byte
	waits    bool // the answer may take its time
}

// do sends the call to its instance, or to another if that one is away, writes
// its answer down and returns it. Without any instance it tries again until
// ctx ends; then the entry is empty.
func (c *client) do(ctx context.Context, o call) entry {
	for i := o.api; ; i++ {
		e, sent := c.once(ctx, o, c.apis[i%len(c.apis)])
		if sent {
			c.books.write(e)
			return e
		}
		if !wait(ctx, again) {
			return entry{}
		}
	}
}

func (c *client) once(ctx context.Context, o call, api string) (e entry, sent bool) {
	e = entry{Kind: o.op, Endpoint: o.endpoint, Job: o.job, Value: o.value, Call: time.Now().UnixNano(), Answer: unknown}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://"+api+"/v2/"+o.endpoint+"/"+o.path, bytes.NewReader(o.body))
	if err != nil {
		c.fault("%s: %v", o.path, err)
		return e, true
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err := c.http.Do(req)
	if err != nil {
		e.At = time.Now().UnixNano()
		var op *net.OpError
		return e, !errors.As(err, &op) || op.Op != "dial"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	e.At = time.Now().UnixNano()
	if e.Job == "" {
		e.Job = resp.Header.Get("X-Job-Id")
	}
	if err != nil {
		return e, true
	}
	c.read(&e, resp.StatusCode, body)
	if !o.waits {
		c.took(time.Duration(e.At - e.Call))
		if o.op == submitOp {
			e.Status = "" // it says how the job was accepted, not how it stands
		}
	}
	return e, true
}

// read turns an answer into the rest of the entry.
func (c *client) read(e *entry, code int, body []byte) {
	switch code {
	case http.StatusOK:
		var v view
		if err := json.Unmarshal(body, &v); err != nil {
			c.fault("%s: is answered with what is no job: %v", e.Kind, err)
			return
		}
		e.Answer, e.Status = yes, v.Status
		if v.ID != "" {
			e.Job = v.ID
		}
		if e.Kind == purgeOp {
			e.Value, e.Status = v.Removed, ""
		}
		if v.Status == "COMPLETED" {
			e.Hash = hashOf(v.Output)
		}
	case http.StatusNotFound:
		e.Answer = gone
	case http.StatusBadRequest:
		e.Answer = no
		if e.Kind != cancelOp && e.Kind != retryOp {
			c.fault("%s: %d %s", e.Kind, code, body)
		}
	case http.StatusServiceUnavailable:
	default:
		c.fault("%s of job %s: %d %s", e.Kind, e.Job, code, body)
	}
}

func (c *client) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, d)
}

func (c *client) status(ctx context.Context, api int, endpoint, id string) entry {
	return c.do(ctx, call{op: statusOp, api: api, endpoint: endpoint, job: id, path: "status/" + id})
}

func (c *client) setTTL(ctx context.Context, api int, endpoint, id string, ttl time.Duration) {
	c.do(ctx, call{
		op: ttlOp, api: api, endpoint: endpoint, job: id, value: ttl.Milliseconds(),
		path: fmt.Sprintf("status/%s?ttl=%d", id, ttl.Milliseconds()),
	})
}

func (c *client) cancel(ctx context.Context, api int, endpoint, id string) {
	c.do(ctx, call{op: cancelOp, api: api, endpoint: endpoint, job: id, path: "cancel/" + id})
}

func (c *client) retry(ctx context.Context, api int, endpoint, id string) {
	c.do(ctx, call{op: retryOp, api: api, endpoint: endpoint, job: id, path: "retry/" + id})
}

func (c *client) purge(ctx context.Context, api int, endpoint string) {
	c.do(ctx, call{op: purgeOp, api: api, endpoint: endpoint, path: "purge-queue", waits: true})
}

// policy is how a job is submitted.
type policy struct {
	ExecutionTimeout int64 `json:"executionTimeout,omitempty"`
	TTL              int64 `json:"ttl,omitempty"`
	LowPriority      bool  `json:"lowPriority,omitempty"`
}

// submit queues a job; its entry's Value is the ttl, if the policy sets one.
func (c *client) submit(ctx context.Context, api int, endpoint string, in input, p policy) entry {
	return c.do(ctx, call{op: submitOp, api: api, endpoint: endpoint, path: "run", value: p.TTL, body: submission(in, p)})
}

// submitSync queues a job and waits a little for its end.
func (c *client) submitSync(ctx context.Context, api int, endpoint string, in input, p policy, within time.Duration) entry {
	return c.do(ctx, call{
		op: submitOp, api: api, endpoint: endpoint, value: p.TTL, body: submission(in, p), waits: true,
		path: fmt.Sprintf("runsync?wait=%d", within.Milliseconds()),
	})
}

func submission(in input, p policy) []byte {
	body, _ := json.Marshal(map[string]any{"input": in, "policy": p}) // plain values
	return body
}
