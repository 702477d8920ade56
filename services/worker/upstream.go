package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/shared/wakeup"
	sdk "flightline/shared/worker"
)

const (
	// maxRefusal is how much of a refusal is kept as the job's error.
	maxRefusal = 16 << 10
	// maxOutput is the longest answer: the output is a list with the answer in it.
	maxOutput = job.MaxOutput - 2
	// maxHeldBack bounds a line of an event stream that is held back until its end.
	maxHeldBack = 256 << 10
	// idleTimeout is shorter than that of the servers' HTTP libraries, 5 s for
	// uvicorn: a request on a connection that is just being closed would be lost.
	idleTimeout = 2 * time.Second
	// resendDelay is the pause before a call is sent again.
	resendDelay = 250 * time.Millisecond
)

// Upstream is a server that speaks OpenAI's API, such as vLLM, SGLang, llama.cpp
// or Ollama.
type Upstream struct {
	// URL is its http or https address, required. A /v1 at its end is dropped, so that
	// the base URL of OpenAI's clients is one too. A login in it is sent, and shown
	// nowhere.
	URL string
	// Health is the path that is answered with 2xx while the server is ready, with
	// a slash first. "" means /health, and /v1/models where that is 404.
	Health string
	// Key is sent as the bearer token, without control characters. "" sends none.
	Key string
}

// upstream passes jobs of the OpenAI route on to a server
// (docs/adr/0056-openai-upstream.md).
type upstream struct {
	base        url.URL
	health      string
	key         string
	client      *http.Client
	probeSignal wakeup.Signal // asks for a probe without a pause
	asleep      atomic.Bool   // probes say nothing then
	// wake wakes a server that an earlier worker may have left asleep. nil means that none has.
	wake func(context.Context) error
	log  *slog.Logger
}

func newUpstream(cfg Upstream, concurrency int, log *slog.Logger) (*upstream, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%w: the upstream's URL must be an http or https one without a query", ErrConfig)
	}
	if cfg.Health != "" && !strings.HasPrefix(cfg.Health, "/") {
		return nil, fmt.Errorf("%w: the upstream's health path must begin with /, got %q", ErrConfig, cfg.Health)
	}
	if strings.ContainsFunc(cfg.Key, unicode.IsControl) { // no request could bring it, so the server would never be ready
		return nil, fmt.Errorf("%w: the upstream's key must not have control characters, such as a line break", ErrConfig)
	}
	base.Path, base.RawPath = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1"), ""
	return &upstream{
		base: *base, health: cfg.Health, key: cfg.Key, probeSignal: wakeup.New(), log: log,
		client: newClient(&http.Transport{MaxIdleConnsPerHost: concurrency, DisableCompression: true}),
	}, nil
}

func (u *upstream) close() { u.client.CloseIdleConnections() }

// run is the handler.
func (u *upstream) run(ctx context.Context, j *sdk.Job) (any, error) {
	c, err := callOf(j.Input)
	if err != nil {
		return nil, err
	}
	if c.plain {
		return u.runPlain(ctx, j, c)
	}
	answer, err := u.send(ctx, c)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if kindOf(answer) == "text/event-stream" {
		return nil, passOn(ctx, answer.Body, func(text string) error { return j.Emit(ctx, text) })
	}
	return readWhole(ctx, answer)
}

// send sends the call. It repeats it while the server has not begun with it: while no
// connection is accepted, and after a 503 while the server is not ready, as llama.cpp
// is while it loads its model. A server that is ready gets it once more, for it may have
// become so a moment ago. If the server stays away, the worker stops and ctx ends.
// Its errors are a failure, a refusal, or the cause of ctx.
func (u *upstream) send(ctx context.Context, c call) (*http.Response, error) {
	for wasReady := false; ; {
		answer, err := u.sendOnce(ctx, c)
		refused, _ := errors.AsType[refusal](err)
		switch {
		case notConnected(err):
		case refused.status == http.StatusServiceUnavailable && !wasReady:
			seen, _ := u.checkHealth(ctx)
			wasReady = seen == healthy
		default:
			return answer, err
		}
		u.probeSignal.Send()
		if retry.Sleep(ctx, resendDelay) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func (u *upstream) sendOnce(ctx context.Context, c call) (*http.Response, error) {
	request, err := u.request(ctx, c.method, c.route, c.body)
	if err != nil {
		return nil, failure400("openai_route is no path: %q", c.route)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	telemetry.SetHeaders(ctx, request.Header)
	answer, err := u.client.Do(request)
	switch wrapped := (*url.Error)(nil); {
	case ctx.Err() != nil:
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, context.Cause(ctx)
	case errors.As(err, &wrapped):
		if notConnected(err) {
			return nil, err // to send alone, as it names the address
		}
		return nil, interruption{failure502("the model server did not answer: %v", withoutAddress(err))}
	case err != nil:
		return nil, err
	case answer.StatusCode >= 200 && answer.StatusCode <= 299:
		return answer, nil
	}
	defer answer.Body.Close()
	if answer.StatusCode < http.StatusBadRequest {
		return nil, failure502("the model server answered %s, which is not followed", answer.Status)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal)) // as much as came
	return nil, refusal{answer.StatusCode, strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\uFFFD")}
}

// request is one to the server, with what lets it in. path may be escaped.
func (u *upstream) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	to := u.base
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return nil, err
	}
	to.Path, to.RawPath = u.base.Path+unescaped, u.base.EscapedPath()+path
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if u.key != "" {
		request.Header.Set("Authorization", "Bearer "+u.key)
	}
	return request, nil
}

// kindOf is the content type, without its parameters.
func kindOf(answer *http.Response) string {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return kind
}

// passOn emits what comes as it comes, in whole lines: a read may end within a
// character, which no JSON string could hold.
func passOn(ctx context.Context, from io.Reader, emit func(string) error) error {
	buf, held := make([]byte, 32<<10), []byte(nil)
	for {
		n, err := from.Read(buf)
		held = append(held, buf[:n]...)
		whole := bytes.LastIndexByte(held, '\n') + 1
		switch {
		case err == io.EOF:
			whole = len(held)
		case len(held)-whole > maxHeldBack:
			whole = lastRune(held)
		}
		if whole > 0 {
			if err := emit(string(held[:whole])); err != nil {
				return err
			}
			held = held[:copy(held, held[whole:])]
		}
		switch {
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return brokeOff(err)
		}
	}
}

// lastRune is where the last character of text begins if it is not whole, else
// the end.
func lastRune(text []byte) int {
	for i := 1; i <= min(utf8.UTFMax, len(text)); i++ {
		if at := len(text) - i; utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				break
			}
			return at
		}
	}
	return len(text)
}

// readWhole makes the output of an answer in one piece: a list of it, as worker-vllm
// leaves it, so that a list is not taken for several answers.
func readWhole(ctx context.Context, answer *http.Response) (any, error) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxOutput+1))
	body = bytes.TrimSpace(body)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, brokeOff(err)
	case len(body) > maxOutput:
		return nil, tooLarge("the model server's answer")
	case len(body) == 0:
		return nil, nil
	case json.Valid(body):
		return json.RawMessage("[" + string(body) + "]"), nil
	case utf8.Valid(body):
		return []string{string(body)}, nil
	}
	return nil, failure502("the model server answered with %s, which is neither JSON nor text", answer.Header.Get("Content-Type"))
}

// refusal is an answer of the server with a status of 400 or more. By this text the
// OpenAI route finds the status and the body (docs/openai.md#errors).
type refusal struct {
	status int
	body   string
}

// Error implements error.
func (r refusal) Error() string {
	return fmt.Sprintf("upstream returned HTTP %d: %s", r.status, r.body)
}

// callError is a failure without an answer of the server, in the form in which the
// OpenAI route finds its status.
type callError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

// Error implements error.
func (f callError) Error() string {
	text, _ := json.Marshal(f) // texts and a number
	return string(text)
}

func failure400(format string, args ...any) error {
	return callError{fmt.Sprintf(format, args...), "invalid_request_error", http.StatusBadRequest}
}

func failure502(format string, args ...any) error {
	return callError{fmt.Sprintf(format, args...), "server_error", http.StatusBadGateway}
}

// brokeOff is the failure of an answer that did not come to its end.
func brokeOff(err error) error {
	return interruption{failure502("the model server's answer broke off: %v", withoutAddress(err))}
}
