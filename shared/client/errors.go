package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// ErrUnreachable means that no whole answer came from the server: it is down,
// the address is wrong, the connection broke, or a proxy says so with a 502 or 504,
// which is an Error too. Whether it did what was asked is not known.
var ErrUnreachable = errors.New("client: could not reach the server")

// ErrTooLarge means that an answer was larger than the API promises at most.
var ErrTooLarge = errors.New("client: the answer is too large")

// ErrNoID means that an endpoint or an id was "" where a call needs one. Nothing was sent.
var ErrNoID = errors.New("the endpoint and each id must not be empty")

// Codes of Error that callers test; the API has more.
const (
	CodeJobNotFound      = "job_not_found"
	CodeEndpointNotFound = "endpoint_not_found"
	CodeJobFinished      = "job_finished"
	// CodeIdempotencyMismatch: the IdempotencyKey was used for another request.
	CodeIdempotencyMismatch = "idempotency_mismatch"
	// CodeRouteNotFound: the address is that of no route of this process.
	CodeRouteNotFound = "route_not_found"
)

// Error is an answer of the server that is not a success.
type Error struct {
	// Status is the HTTP status, as 404.
	Status int
	// Code is the reason from the API's closed list; "" if the answer did not
	// come from Flightline, as from a proxy.
	Code string
	// Message is for people.
	Message string
	// RequestID finds the line in the server's log; "" if it gave none.
	RequestID string
	// RetryAfter is how long the server asks to wait; 0 if it did not say.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s (HTTP %d", cmp.Or(e.Message, http.StatusText(e.Status), "no reason given"), e.Status)
	if e.Code != "" {
		text += ", " + e.Code
	}
	if e.RequestID != "" && e.Status >= http.StatusInternalServerError {
		text += ", request " + e.RequestID
	}
	return text + ")"
}

// Temporary reports whether the same request may succeed later unchanged: the
// server is busy, limits the rate, or has lost its JetStream for now.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable
}

// IsNotFound reports whether err says that the job, endpoint or key does not
// exist, or no longer does. A 404 at a wrong address, of a Flightline without the route or
// of a program that gives no reason, says nothing about it.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound && e.Code+e.Message != "" && e.Code != CodeRouteNotFound
}

// refusalOf is the error of an answer that is not a success.
func refusalOf(status int, header http.Header, body []byte) error {
	e := errorOf(status, header, body)
	if e.Code == "" && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout) {
		return fmt.Errorf("%w: %w", ErrUnreachable, e)
	}
	return e
}

// errorOf reads an answer that is not a success.
func errorOf(status int, header http.Header, body []byte) *Error {
	var wire struct {
		Error     string `json:"error"`
		Code      string `json:"code"`
		RequestID string `json:"requestId"`
	}
	e := &Error{Status: status, RetryAfter: retryAfter(header.Get("Retry-After"))}
	if json.Unmarshal(body, &wire) == nil { // else not ours: the status must do
		e.Message, e.Code, e.RequestID = wire.Error, wire.Code, wire.RequestID
	}
	e.RequestID = cmp.Or(e.RequestID, header.Get("X-Request-Id"))
	return e
}

// retryAfter reads whole seconds; the other form, a date, needs a clock that
// agrees with the server's and is not used by Flightline.
func retryAfter(value string) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
