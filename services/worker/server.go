package worker

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"flightline/shared/telemetry"
	sdk "flightline/shared/worker"
)

// errorBody is how much of a refusal is kept as the job's error.
const errorBody = 4 << 10

// server hands each job to an HTTP server: the job object is POSTed, a 2xx
// answer with JSON, or without a body, completes the job, any other fails it
// with the status and the text of the answer. An answer of type
// application/x-ndjson is read as a command's output is.
type server struct {
	url    string
	client *http.Client
	log    *slog.Logger
}

func newServer(url string, concurrency int, log *slog.Logger) *server {
	return &server{url: url, log: log, client: newClient(&http.Transport{MaxIdleConnsPerHost: concurrency})}
}

// newClient uses no proxy and follows no redirect: the server is next to us.
// The job's context is what ends a request.
func newClient(transport *http.Transport) *http.Client {
	transport.IdleConnTimeout = idleTimeout
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *server) close() { s.client.CloseIdleConnections() }

// run is the handler.
func (s *server) run(ctx context.Context, j *sdk.Job) (any, error) {
	body, err := documentOf(j)
	if err != nil {
		return nil, fmt.Errorf("encode the job: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", withoutAddress(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, application/x-ndjson")
	telemetry.SetHeaders(ctx, request.Header)
	answer, err := s.client.Do(request)
	if err != nil {
		why := fmt.Errorf("ask the server: %w", withoutAddress(err))
		if notConnected(err) {
			return nil, unstarted{why}
		}
		return nil, interruption{why}
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, errorBody)) // as much as came
		return nil, fmt.Errorf("the server answered %s: %s", answer.Status, bytes.TrimSpace(text))
	}
	if kindOf(answer) == "application/x-ndjson" {
		return s.stream(ctx, j, interruptible{answer.Body})
	}
	return outputOf(interruptible{answer.Body})
}

// notConnected reports whether a request was not sent, since no connection could be made.
func notConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// withoutAddress is why a request had no answer. Callers read it, and the address may hold
// a secret.
func withoutAddress(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(dns.Err)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return errors.New("x509: the certificate is valid for other names")
	}
	return err
}

// outputOf reads an answer that is one JSON document or nothing.
func outputOf(body io.Reader) (any, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxLine+1))
	if err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	data = bytes.TrimSpace(data)
	switch {
	case len(data) > maxLine:
		return nil, tooLarge("the server's answer")
	case len(data) == 0:
		return nil, nil
	case !json.Valid(data):
		return nil, fmt.Errorf("the server's answer is not JSON: %.200q", data)
	}
	return json.RawMessage(data), nil
}

func (s *server) stream(ctx context.Context, j *sdk.Job, body io.Reader) (any, error) {
	out := &results{
		emit: func(chunk json.RawMessage) error { return j.Emit(ctx, chunk) },
		other: func(line []byte) {
			s.log.DebugContext(ctx, "server says", "job", j.ID, "run", j.Run, "line", string(line))
		},
	}
	if err := out.readFrom(body); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return out.output()
}
