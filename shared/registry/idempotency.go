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

// A claim that meets another one, which cannot be read yet, is tried again, maxClaims times
// with a pause before each.
const (
	maxClaims       = 30
	claimRetryDelay = 50 * time.Millisecond
)

// Submission is what an Idempotency-Key stands for: the first request that
// came with it.
type Submission struct {
	Job  job.ID   `json:"job"`
	Mode job.Mode `json:"mode"`
	// Body is the SHA-256 of the request's body, in hex.
	Body string `json:"body"`
	// Accepted says that the job got into the queue. While it is false
	// that is unknown.
	Accepted bool `json:"accepted,omitempty"`
	// Searched is the last entry of the event log up to which nothing mentions the job; 0
	// before the first search.
	Searched uint64 `json:"searched,omitempty"`

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
	for range maxClaims {
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
		if err := retry.Sleep(ctx, claimRetryDelay); err != nil {
			return Submission{}, false, err
		}
	}
	return Submission{}, false, fmt.Errorf("claim %s: %w", name, bus.ErrUnavailable)
}

// Accept notes that the job of a claimed submission is in the queue. That
// somebody else did so already is no error.
func (i *Idempotency) Accept(ctx context.Context, name string, s Submission) error {
	return i.note(ctx, name, s, func(s *Submission) (changed bool) {
		changed, s.Accepted = !s.Accepted, true
		return changed
	})
}

// Search notes that the event log was searched for the job of a claimed submission up to
// an entry, and has nothing about it.
func (i *Idempotency) Search(ctx context.Context, name string, s Submission, upTo uint64) error {
	return i.note(ctx, name, s, func(s *Submission) (changed bool) {
		changed, s.Searched = s.Searched < upTo, max(s.Searched, upTo)
		return changed
	})
}

// note changes a claim, which others may change meanwhile. That it is forgotten is no error.
func (i *Idempotency) note(ctx context.Context, name string, s Submission, change func(*Submission) (changed bool)) error {
	known := s
	if !change(&known) {
		return nil
	}
	if _, err := i.table.Update(ctx, name, known, s.revision); !errors.Is(err, ErrConflict) {
		return err
	}
	_, err := i.table.change(ctx, name, func(old Submission, found bool) (Submission, error) {
		if !found || old.Job != s.Job || !change(&old) {
			return old, errUnchanged
		}
		return old, nil
	})
	return ignoreUnchanged(err)
}
