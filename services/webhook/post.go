package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"flightline/shared/job"
	"flightline/shared/netguard"
)

const (
	// maxAnswer is how much of an answer is read, maxAnswerKept how much is kept.
	maxAnswer, maxAnswerKept = 4 << 10, 256
	// answerTimeout bounds the read of an answer after its headers, which have
	// all that decides the outcome.
	answerTimeout = 2 * time.Second
	// maxErrorText bounds the text of an error.
	maxErrorText = 300
	userAgent    = "Flightline-Webhook/1"
)

// result is the outcome of an attempt.
type result struct {
	status     int
	retryAfter time.Duration
	answer     string
	err        string
	gone       bool // the payload is, so nothing was posted
}

// ok: any 2xx.
func (r result) ok() bool { return r.status >= 200 && r.status <= 299 }

// reason explains in a line why the attempt failed.
func (r result) reason() string {
	if r.err != "" {
		return r.err
	}
	return fmt.Sprintf("status %d", r.status)
}

// post makes an attempt. It returns an error only when ctx ends: then the
// outcome is unknown.
func (s *Service) post(ctx context.Context, to target, header http.Header, body []byte) (result, error) {
	if err := to.allowed(s.cfg); err != nil {
		return result{err: err.Error()}, nil
	}
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(s.cfg.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer timeout.Stop()
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return result{err: s.explain(attempt, err)}, nil
	}
	req.Header = header
	resp, err := s.client.Do(req)
	if ctx.Err() != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		return result{}, ctx.Err()
	}
	if err != nil {
		return result{err: s.explain(attempt, err)}, nil
	}
	defer resp.Body.Close()
	got := result{status: resp.StatusCode}
	if !got.ok() {
		got.retryAfter = retryAfter(resp.Header, time.Now())
	}
	timeout.Reset(answerTimeout)
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // as much as comes
	got.answer = job.Cut(string(answer), maxAnswerKept)
	return got, nil
}

// explain describes an error without the address, which may hold a secret.
func (s *Service) explain(attempt context.Context, err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	switch {
	case errors.Is(context.Cause(attempt), context.DeadlineExceeded):
		return "no answer within " + s.cfg.Timeout.String()
	case errors.Is(err, netguard.ErrAddress):
		return "the address is not allowed: " + job.Cut(err.Error(), maxErrorText)
	case errors.Is(err, io.EOF):
		return "the connection was closed without an answer"
	}
	return job.Cut(err.Error(), maxErrorText)
}
