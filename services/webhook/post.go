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
	"sync"
	"time"

	"flightline/shared/netguard"
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

// Headers that all webhooks have.
var contentType, agent = []string{"application/json"}, []string{userAgent}

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
	attempt := s.clocks.start(ctx, s.cfg.Timeout)
	defer s.clocks.stop(attempt)
	req := requestOf(attempt.Context, to, header, body) //nolint:contextcheck // attempt ends with ctx
	resp, err := s.client.Transport.RoundTrip(req)      // what Do adds, redirects and cookies, is not wanted
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	if err != nil {
		return result{err: s.explain(attempt, err)}, nil //nolint:contextcheck // as above
	}
	defer resp.Body.Close()
	got := result{status: resp.StatusCode}
	if !got.ok() {
		got.retryAfter = retryAfter(resp.Header, time.Now())
	}
	if resp.ContentLength != 0 {
		attempt.late.Reset(answerWithin)
		got.answer = answerOf(resp.Body)
	}
	return got, nil
}

// blank is what all requests have.
var blank = &http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}

// requestOf is what http.NewRequest makes, of an address that was parsed before.
func requestOf(ctx context.Context, to target, header http.Header, body []byte) *http.Request {
	req := blank.WithContext(ctx) // a copy
	req.URL, req.Host, req.Header = to.url, to.url.Host, header
	if len(body) > 0 {
		req.ContentLength, req.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	if user := to.url.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req
}

// answers are buffers for them.
var answers = sync.Pool{New: func() any { return new([answerMost]byte) }}

// answerOf is the beginning of an answer, as much as comes.
func answerOf(body io.Reader) string {
	b := answers.Get().(*[answerMost]byte) //nolint:forcetypeassert // nothing else is in it
	defer answers.Put(b)
	n, _ := io.ReadFull(body, b[:])
	return cut(string(b[:min(n, answerShown)]), answerShown)
}

// explain says what went wrong without the address, which may hold a secret.
func (s *Service) explain(attempt context.Context, err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	switch {
	case errors.Is(context.Cause(attempt), context.DeadlineExceeded):
		return "no answer within " + s.cfg.Timeout.String()
	case errors.Is(err, netguard.ErrAddress):
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
