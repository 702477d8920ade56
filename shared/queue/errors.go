package queue

import (
	"errors"
	"fmt"

	"flightline/shared/job"
)

var (
	// ErrUnavailable means that JetStream did not answer in time. Whether a
	// write took place is unknown; every call of this package may be repeated.
	ErrUnavailable = errors.New("queue: JetStream is not available")
	// ErrMissing is the ErrUnavailable that another try soon after does not mend:
	// a stream is missing or cannot be read. See MissingError.
	ErrMissing = fmt.Errorf("%w: a stream is missing", ErrUnavailable)
	// ErrLost means that the lease is over: the job was cancelled, timed out,
	// expired, or given to another worker. What the handler produced is not wanted.
	ErrLost = errors.New("queue: the lease is lost")
	// ErrClosed means that the Taker was closed.
	ErrClosed = errors.New("queue: the taker is closed")
	// ErrChunkTooLarge means that a chunk that is no string exceeds job.MaxChunk.
	ErrChunkTooLarge = errors.New("queue: " + job.ErrTextChunkTooLarge)
	// ErrProgressTooLarge means that a progress value exceeds job.MaxProgress.
	ErrProgressTooLarge = errors.New("queue: the progress value is larger than 64 KB")

	// errConflict: the subject's last sequence is not the expected one.
	errConflict = errors.New("queue: somebody else wrote first")
	// errInFlight is an errConflict with a write that no reader sees yet, and
	// that may still fail. Three replicas have it only.
	errInFlight = fmt.Errorf("%w, and may still fail", errConflict)
	// errNoMessage: no message matches.
	errNoMessage = errors.New("queue: no message")
	// errPayload: parts of a payload are missing or do not match its hash.
	errPayload = errors.New("queue: the payload is incomplete")
)
