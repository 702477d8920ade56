package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"flightline/shared/job"
)

const (
	// maxAnswer bounds what is read: the largest output, and the rest of the
	// record around it.
	maxAnswer = job.MaxOutput + 1<<20
	// requestTimeout bounds a request that waits for nothing. Sending 20 MB
	// over a slow line is within it.
	requestTimeout = time.Minute
	// waitSlack is how much longer than the wait it asked for a request may
	// take before the server counts as gone.
	waitSlack = 15 * time.Second
)

// call is one operation of the API.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	body   any           // nil sends none; json.RawMessage goes verbatim
	wait   time.Duration // how long the server was asked to hold the answer
	once   string        // the Idempotency-Key; "" sends none
	heard  func(http.Header)
}

// do sends a call and reads its answer into out, unless that is nil. It is sent
// again, for as long as the client has patience, if the server did not take the
// connection; calls that only read, or have an Idempotency-Key, also if no
// answer came, or one that says that a later one may.
func (c *Client) do(ctx context.Context, op call, out any) error {
	var body []byte
	if op.body != nil {
		var err error
		if body, err = json.Marshal(op.body); err != nil {
			return fmt.Errorf("client: encode request: %w", err)
		}
	}
	answer, err := c.attempts(ctx, op, body)
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("client: %s %s: the answer is not what the API promises: %w", op.method, op.path, err)
	}
	return nil
}

func (c *Client) attempts(ctx context.Context, op call, body []byte) ([]byte, error) {
	tries := tries{patience: c.patience, places: len(c.bases)}
	for {
		at := c.at.Load()
		answer, err := c.send(ctx, at, op, body)
		if err == nil {
			return answer, nil
		}
		if away(err) {
			c.leave(at) // the next call, if not this one, goes elsewhere
		}
		if !op.repeatable(err) {
			return nil, err
		}
		pause, again := tries.after(err)
		if !again || !sleep(ctx, pause) {
			return nil, err
		}
	}
}

// repeatable tells whether sending the call again, after it ended with err, can
// help and cannot do twice what was asked for once.
func (op call) repeatable(err error) bool {
	refused, answered := errors.AsType[*Error](err)
	switch {
	case errors.Is(err, errNotSent):
		return true
	case op.method != http.MethodGet && op.once == "":
		return false
	case answered:
		return refused.Temporary()
	}
	return errors.Is(err, ErrUnreachable)
}

// send makes one attempt and returns the body of a successful answer.
func (c *Client) send(ctx context.Context, at uint32, op call, body []byte) ([]byte, error) {
	limit := requestTimeout
	if op.wait > 0 {
		limit = op.wait + waitSlack
	}
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := c.request(attempt, at, op, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unreachable(ctx, err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, errorOf(resp.StatusCode, resp.Header, answer)
	}
	if op.heard != nil {
		op.heard(resp.Header)
	}
	return answer, nil
}

func (c *Client) request(ctx context.Context, at uint32, op call, body []byte) (*http.Request, error) {
	address := c.base(at) + op.path
	if len(op.query) > 0 {
		address += "?" + op.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, op.method, address, reader)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if op.once != "" {
		req.Header.Set("Idempotency-Key", op.once)
	}
	return req, nil
}

// unreachable tells the end of the caller's patience from a server that does
// not answer.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the method and the address, which the caller knows
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("%w: %w%w", ErrUnreachable, errNotSent, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// one is a call that answers one T.
func one[T any](ctx context.Context, c *Client, op call) (*T, error) {
	var got T
	if err := c.do(ctx, op, &got); err != nil {
		return nil, err
	}
	return &got, nil
}
