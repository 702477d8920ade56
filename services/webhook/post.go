package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"code.dny.dev/ssrf"
)

const (
	// answerMost is how much of an answer is read, answerShown how much is kept.
	answerMost, answerShown = 4 << 10, 256
	// answerWithin is how long an answer may take after its headers: what
	// counts has been said in them.
	answerWithin = 2 * time.Second
	// errorShown bounds the text of an error.
	errorShown = 300
	userAgent  = "Flightline-Webhook/1"
)

// result is what came of an attempt.
type result struct {
	status     int
	retryAfter time.Duration
	answer     string
	err        string
}

// ok: any 2xx.
func (r result) ok() bool { return r.status >= 200 && r.status <= 299 }

// reason is why the attempt failed, in a line.
func (r result) reason() string {
	if r.err != "" {
		return r.err
	}
	return fmt.Sprintf("status %d", r.status)
}

// post makes an attempt. It returns an error only at the end of ctx: then
// nobody knows what came of it.
func (s *Service) post(ctx context.Context, to target, header http.Header, body []byte) (result, error) {
	if err := to.allowed(s.cfg); err != nil {
		return result{err: err.Error()}, nil
	}
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(s.cfg.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return result{err: errAddress.Error()}, nil // err has the address in its text
	}
	req.URL, req.Host, req.Header = to.url, to.url.Host, header // it was parsed before
	if user := to.url.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	resp, err := s.client.Transport.RoundTrip(req) // what Do adds, redirects and cookies, is not wanted
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	if err != nil {
		return result{err: s.explain(attempt, err)}, nil
	}
	defer resp.Body.Close()
	late.Reset(answerWithin)
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, answerMost)) // as much as comes
	return result{status: resp.StatusCode, retryAfter: retryAfter(resp.Header, time.Now()), answer: cut(string(answer), answerShown)}, nil
}

// explain says what went wrong without the address, which may hold a secret.
func (s *Service) explain(attempt context.Context, err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	switch {
	case errors.Is(context.Cause(attempt), context.DeadlineExceeded):
		return "no answer within " + s.cfg.Timeout.String()
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return "the address is not allowed: " + cut(err.Error(), errorShown)
	case errors.Is(err, io.EOF):
		return "the connection was closed without an answer"
	}
	return cut(err.Error(), errorShown)
}

// cut is at most n bytes of text, valid UTF-8.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}
