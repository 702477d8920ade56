package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/retry"
)

// A claim that meets a claim that cannot be read yet is tried again, claims times
// with a pause before each.
const (
	claims     = 30
	claimPause = 50 * time.Millisecond
)

// Submission is what an Idempotency-Key stands for: the first request that
// came with it.
type Submission struct {
	Job  job.ID   `json:"job"`
	Mode job.Mode `json:"mode"`
	// Body is the SHA-256 of the request's body, in hex.
	Body string `json:"body"`
	// Accepted says that the job got into the queue. While it is false nobody
	// knows.
	Accepted bool `json:"accepted,omitempty"`

	revision uint64
}

// Same reports whether another request with the key asks for the same.
func (s Submission) Same(mode job.Mode, body string) bool { return s.Mode == mode && s.Body == body }

// Idempotency remembers Idempotency-Keys for 24 hours (docs/design/product.md#idempotency-keys).
type Idempotency struct {
	table *Table[Submission]
}

// IdempotencyKey names the key that a caller gave to its requests: keys of
// other callers, and of other endpoints, also of an earlier endpoint of the same
// id, are others. Neither of the two can be read from it.
func IdempotencyKey(e endpoint.Endpoint, caller, key string) string {
	h := sha256.New()
	for _, part := range []string{e.ID, strconv.FormatInt(e.Created.UnixMilli(), 10), caller, key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Claim returns what name stands for: s, if nothing did before, and first is
// true; else the submission that came first. Of many that claim at once one is
// first, wherever they are. It returns bus.ErrUnavailable; then s may stand there
// all the same, and will be found by the next Claim.
func (i *Idempotency) Claim(ctx context.Context, name string, s Submission) (claimed Submission, first bool, err error) {
	for range claims {
		s.revision, err = i.table.Create(ctx, name, s)
		if !errors.Is(err, ErrExists) {
			return s, err == nil, err
		}
		claimed, revision, err := i.table.Get(ctx, name)
		claimed.revision = revision
		if !errors.Is(err, ErrNotFound) {
			return claimed, false, err
		}
		// Its 24 hours are over just now; or it is in flight to the replicas,
		// and may still fail.
		if err := retry.Sleep(ctx, claimPause); err != nil {
			return Submission{}, false, err
		}
	}
	return Submission{}, false, fmt.Errorf("claim %s: %w", name, bus.ErrUnavailable)
}

// Accept notes that the job of a claimed submission is in the queue. That
// somebody else did so already is no error.
func (i *Idempotency) Accept(ctx context.Context, name string, s Submission) error {
	s.Accepted = true
	_, err := i.table.Update(ctx, name, s, s.revision)
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrExists) {
		return nil
	}
	return err
}
