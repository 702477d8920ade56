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
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"flightline/shared/job"
	"flightline/shared/retry"
)

const (
	// maxAnswer bounds what is read: the largest output, and the rest of the
	// record around it.
	maxAnswer = job.MaxOutput + 1<<20
	// requestTimeout bounds a request that waits for nothing. Sending 20 MB
	// over a slow line is within it.
	requestTimeout = time.Minute
	// longWait is for what the server does to many jobs before it answers, as a purge.
	longWait = time.Hour
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
	wait   time.Duration // how long the server may hold the answer; 0: it answers at once
	once   string        // the Idempotency-Key; "" sends none
	heard  func(http.Header)
}

func get(path string, query url.Values) call {
	return call{method: http.MethodGet, path: path, query: query}
}

func post(path string, body any) call {
	return call{method: http.MethodPost, path: path, body: body}
}

func patch(path string, body any) call {
	return call{method: http.MethodPatch, path: path, body: body}
}

func remove(path string) call { return call{method: http.MethodDelete, path: path} }

// do sends a call and reads its answer into out, unless that is nil. It is sent
// again, for as long as the client has patience, if the server did not take the
// connection; calls that only read, or have an Idempotency-Key, also if no
// answer came, or an answer that asks for another try.
func (c *Client) do(ctx context.Context, op call, out any) error {
	var body []byte
	if op.body != nil {
		var err error
		if body, err = job.AppendJSON(nil, op.body); err != nil {
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
	err = json.Unmarshal(answer, out)
	if err == nil && string(bytes.TrimSpace(answer)) == "null" { // which any type takes
		err = errors.New("null")
	}
	if err != nil {
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
		if !again {
			return nil, err
		}
		if end := sleep(ctx, pause); end != nil {
			return nil, fmt.Errorf("%w: %w", end, err)
		}
	}
}

// repeatable reports whether sending the call again, after it ended with err, can
// help and cannot do twice what was asked for once.
func (op call) repeatable(err error) bool {
	refused, answered := errors.AsType[*Error](err)
	switch {
	case errors.Is(err, errNotSent):
		return true
	case op.method != http.MethodGet && op.once == "":
		return false
	}
	return errors.Is(err, ErrUnreachable) || answered && refused.Temporary()
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
		return nil, refusalOf(resp.StatusCode, resp.Header, answer)
	}
	if op.heard != nil {
		op.heard(resp.Header)
	}
	return answer, nil
}

func (c *Client) request(ctx context.Context, at uint32, op call, body []byte) (*http.Request, error) {
	if strings.Contains(op.path+"/", "//") { // of another operation, or a 404 as if the job were gone
		return nil, fmt.Errorf("client: %s %s: %w", op.method, op.path, ErrNoID)
	}
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
	return req, checkHeader(req.Header)
}

// checkHeader refuses what net/http would not send: its error looks like that of a server
// which is away, and the call would be repeated.
func checkHeader(header http.Header) error {
	for name, values := range header {
		if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, unicode.IsControl) }) {
			return fmt.Errorf("client: %s must not have control characters, such as a line break, got %q", name, values)
		}
	}
	return nil
}

// unreachable distinguishes the end of the caller's patience from a server that does
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
	got, err := value[T](ctx, c, op)
	if err != nil {
		return nil, err
	}
	return &got, nil
}

// value is one for a T that is returned by value, as a list.
func value[T any](ctx context.Context, c *Client, op call) (got T, err error) {
	err = c.do(ctx, op, &got)
	return got, err
}

// v2 is the path of an operation of the queue API.
func v2(endpoint string, rest ...string) string { return escaped("/v2", endpoint, rest...) }

// v1 is the path of a thing of the REST API.
func v1(kind string, rest ...string) string { return escaped("/v1", kind, rest...) }

func escaped(root, first string, rest ...string) string {
	var path strings.Builder
	path.WriteString(root + "/" + url.PathEscape(first))
	for _, part := range rest {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

// queryOf is a query of the parameters that are not "".
func queryOf(parameters map[string]string) url.Values {
	query := url.Values{}
	for name, text := range parameters {
		if text != "" {
			query.Set(name, text)
		}
	}
	return query
}

// countText is a number as a parameter, "" for 0.
func countText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// instantText is an instant as a parameter, "" for the zero time.
func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// millis is a query of one duration in ms; 0 leaves it to the server.
func millis(name string, d time.Duration) url.Values {
	if d == 0 {
		return nil
	}
	return url.Values{name: {strconv.FormatInt(d.Milliseconds(), 10)}}
}

// held is how long the server will hold an answer for which wait was asked.
func held(wait time.Duration) time.Duration {
	if wait == 0 {
		return job.DefaultWait
	}
	return wait
}

func ofMillis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// ofOptionalMillis is 0 for an absent field.
func ofOptionalMillis(n *int64) time.Duration {
	if n == nil {
		return 0
	}
	return ofMillis(*n)
}

// optionalMillis is nil for 0. Less than a millisecond counts as one: the server refuses it,
// and does not take it for a field that was left out.
func optionalMillis(d time.Duration) *int64 {
	if d > 0 {
		d = max(d, time.Millisecond)
	}
	return orAbsent(d.Milliseconds())
}

// orAbsent leaves the zero value out of a request.
func orAbsent[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// unmarshalWithRaw reads an answer into v, and keeps a copy of it in raw.
func unmarshalWithRaw(data []byte, v any, raw *json.RawMessage) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	*raw = bytes.Clone(data)
	return nil
}

// rawOr is raw, or null if none exists.
func rawOr(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return []byte("null"), nil
	}
	return raw, nil
}

const (
	// defaultPatience outlasts the restart of a server, and of its NATS.
	defaultPatience = 30 * time.Second
	firstPause      = 100 * time.Millisecond
	// maxPause bounds the pauses that double.
	maxPause = 4 * time.Second
)

// errNotSent marks an attempt that ended before a byte was sent. It has no text:
// what it is wrapped with says why.
var errNotSent error = notSentError{}

type notSentError struct{}

func (notSentError) Error() string { return "" }

// tries are the attempts at one call that failed.
type tries struct {
	patience time.Duration
	places   int // how many addresses there are
	made     int
	since    time.Time // the first failure
}

// after decides whether to try again after an attempt that ended with err, and
// after which pause: none while there are addresses that were not tried, else
// what the server asks for, or a pause that doubles.
func (t *tries) after(err error) (time.Duration, bool) {
	t.made++
	if t.since.IsZero() {
		t.since = time.Now()
	}
	pause := time.Duration(0)
	if t.made%t.places == 0 || !away(err) {
		pause = backoff(t.made / t.places)
		if refused, ok := errors.AsType[*Error](err); ok {
			pause = max(pause, refused.RetryAfter)
		}
	}
	return pause, t.patience > 0 && time.Since(t.since)+pause < t.patience
}

// away reports whether another address may do better: a rate limit is the same
// everywhere.
func away(err error) bool {
	refused, answered := errors.AsType[*Error](err)
	return errors.Is(err, ErrUnreachable) || answered && refused.Status == http.StatusServiceUnavailable
}

// backoff is between half of and the whole doubled pause, so that many callers
// do not come back at the same moment.
func backoff(attempt int) time.Duration {
	return retry.Jitter(retry.Backoff{First: firstPause, Max: maxPause}.Delay(max(1, attempt)))
}

// sleep waits. If ctx ends before, it returns how, at once where a deadline says so:
// waiting for an attempt that can no longer be made helps nobody.
func sleep(ctx context.Context, pause time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
		return context.DeadlineExceeded
	}
	return retry.Sleep(ctx, pause)
}
