package queue

import (
	"errors"
	"fmt"
)

// ErrNoSpace is what every SpaceError unwraps to.
var ErrNoSpace = errors.New("queue: no space")

// SpaceError means that the storage is nearly full: what is left is kept for jobs
// that were accepted. The job was not accepted.
type SpaceError struct {
	// Free is what is left, Reserve what is kept, both in bytes.
	Free, Reserve uint64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("the storage is nearly full: %d bytes are free, and %d are kept for jobs that were accepted; try again later", e.Free, e.Reserve)
}

// Unwrap makes errors.Is(err, ErrNoSpace) hold.
func (e *SpaceError) Unwrap() error { return ErrNoSpace }

// hasSpace returns a *SpaceError if no more jobs are to be accepted.
func (q *Queue) hasSpace() error {
	if q.cfg.HasSpace == nil {
		return nil
	}
	return q.cfg.HasSpace()
}
