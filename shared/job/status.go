package job

import (
	"errors"
	"fmt"
)

// Status is where a job stands, spelled as the API spells it (contract,
// "States and transitions").
type Status string

// The six statuses of the contract.
const (
	InQueue    Status = "IN_QUEUE"
	InProgress Status = "IN_PROGRESS"
	Completed  Status = "COMPLETED"
	Failed     Status = "FAILED"
	TimedOut   Status = "TIMED_OUT"
	Cancelled  Status = "CANCELLED"
)

// Trigger is what happens to a job.
type Trigger string

// The triggers (docs/design/data-model.md#triggers). A lost worker is Claim by
// another worker or, after too many, Fail. Touch changes instants or progress
// and never the status.
const (
	Claim   Trigger = "claim"
	Touch   Trigger = "touch"
	Succeed Trigger = "complete"
	Fail    Trigger = "fail"
	TimeOut Trigger = "time out"
	Cancel  Trigger = "cancel"
	Release Trigger = "release"
	Retry   Trigger = "retry"
)

// Statuses lists every status in the order of a job's life.
func Statuses() []Status {
	return []Status{InQueue, InProgress, Completed, Failed, TimedOut, Cancelled}
}

// table is the whole life of an attempt, and Retry, which begins the next one.
// What is not in it does not happen.
var table = map[Status]map[Trigger]Status{
	InQueue:    {Claim: InProgress, Touch: InQueue, Cancel: Cancelled},
	InProgress: {Claim: InProgress, Touch: InProgress, Succeed: Completed, Fail: Failed, TimeOut: TimedOut, Cancel: Cancelled, Release: InQueue},
	Completed:  {Touch: Completed},
	Failed:     {Touch: Failed, Retry: InQueue},
	TimedOut:   {Touch: TimedOut, Retry: InQueue},
	Cancelled:  {Touch: Cancelled},
}

// Next returns the status that by leads to, or a *TransitionError, which is
// an ErrConflict, if by is not possible in s.
func (s Status) Next(by Trigger) (Status, error) {
	if to, ok := table[s][by]; ok {
		return to, nil
	}
	return s, &TransitionError{From: s, By: by}
}

// Terminal reports whether the attempt is over: only Retry, which begins
// another attempt, leads out.
func (s Status) Terminal() bool {
	switch s {
	case Completed, Failed, TimedOut, Cancelled:
		return true
	case InQueue, InProgress:
		return false
	}
	return false
}

// Valid reports whether s is one of the six statuses.
func (s Status) Valid() bool {
	_, ok := table[s]
	return ok
}

// ErrConflict is what a TransitionError unwraps to.
var ErrConflict = errors.New("job: not possible in this status")

// TransitionError says which trigger met which status.
type TransitionError struct {
	From Status
	By   Trigger
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("job: cannot %s while %s", e.By, e.From)
}

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *TransitionError) Unwrap() error { return ErrConflict }

// Retryable reports whether a job in this status may be retried.
func (s Status) Retryable() bool {
	_, err := s.Next(Retry)
	return err == nil
}
