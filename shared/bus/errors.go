package bus

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrUnavailable means that JetStream did not answer in time. Whether a write
	// took place is unknown; the call may be repeated.
	ErrUnavailable = errors.New("bus: JetStream is not available")
	// ErrMissing is the ErrUnavailable that another try soon after does not mend:
	// a stream is missing or cannot be read. See MissingError.
	ErrMissing = fmt.Errorf("%w: a stream is missing", ErrUnavailable)
	// ErrConflict means that the last sequence on the subject is not the expected
	// one: another process wrote first.
	ErrConflict = errors.New("bus: the subject was written meanwhile")
	// ErrNoMessage means that no message matches.
	ErrNoMessage = errors.New("bus: no message")
	// ErrTooMany means that more than MaxMatches subjects match those of a request.
	ErrTooMany = errors.New("bus: too many subjects match")

	// errInFlight is an ErrConflict with a write that no reader sees yet, and that
	// may still fail. It occurs with three replicas only.
	errInFlight = fmt.Errorf("%w, and may still fail", ErrConflict)
)

// MissingError means that JetStream does not have a stream that must exist, or a
// consumer of it: its files are damaged or gone, it was deleted by hand, or its endpoint
// is not made yet. Nothing was decided and nothing was changed. It wraps ErrMissing.
type MissingError struct {
	// Stream is the name of the stream, such as JOBS_<endpoint>.
	Stream string
	// Doing is what failed.
	Doing string
	// Changing: nothing is damaged. The stream is of an endpoint that is being made, or
	// deleted.
	Changing bool
}

func (e *MissingError) Error() string {
	if e.Changing {
		return fmt.Sprintf("%s: stream %s is being made or deleted", e.Doing, e.Stream)
	}
	return fmt.Sprintf("%s: stream %s, or a consumer of it, is missing or cannot be read", e.Doing, e.Stream)
}

// Unwrap makes errors.Is(err, ErrMissing) hold.
func (e *MissingError) Unwrap() error { return ErrMissing }

// APIError is the error of a JetStream API answer.
type APIError struct {
	Code        int    `json:"code"`
	ErrorCode   int    `json:"err_code"` //nolint:tagliatelle // the server's name
	Description string `json:"description"`
}

// The server's error codes that decide something.
const (
	codeNoMessage     = 10037
	codeWrongLast     = 10071 // the expected last sequence is another
	codeWriteInFlight = 10164 // another write of the subject is in flight
	codeNoStream      = 10059
	codeNoConsumer    = 10014
	codeStreamFailed  = 10051 // the error of a stream's store, in its text
	codeDeleteFailed  = 10057 // a message is not there, or could not be removed
	codeStoreFailed   = 10049 // among others: a deleted stream's folder is still being removed
	codeAccountFull   = 10002 // the storage of the account is used up
)

func (e *APIError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrorCode) }

// NoStream reports whether the stream of the request does not exist. A nil error
// says no.
func (e *APIError) NoStream() bool { return e != nil && e.ErrorCode == codeNoStream }

// explain turns an API error into one of this package's, with what was done.
func (e *APIError) explain(doing string) error {
	switch {
	case e.ErrorCode == codeNoMessage || e.Code == 404 && e.ErrorCode == 0:
		return ErrNoMessage
	case e.ErrorCode == codeWrongLast:
		return ErrConflict
	case e.ErrorCode == codeWriteInFlight:
		return errInFlight
	case e.Code == 503 || e.Code == 500 || e.ErrorCode == codeAccountFull:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, e)
	}
	return fmt.Errorf("%s: %w", doing, e)
}

// Unavailable turns an error of the jetstream package into one of this package's:
// what the server refused stays as it is, anything else is ErrUnavailable.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	if IsRefused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// IsRefused reports whether the server answered that it will not do what it was asked,
// however often: neither it nor its store is away or full.
func IsRefused(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.Code < 500 && refused.ErrorCode != codeStoreFailed && refused.ErrorCode != codeAccountFull
}

// IsConflict reports whether the server refused a write because of the last sequence
// that it expects, of the stream or of a subject.
func IsConflict(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
