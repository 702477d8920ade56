package pod

import "fmt"

// Status is desiredStatus of the contract.
type Status string

// The statuses.
const (
	Running    Status = "RUNNING"
	Exited     Status = "EXITED"
	Terminated Status = "TERMINATED"
)

// Trigger is what happens to a pod.
type Trigger string

// The triggers.
const (
	// Start is a request to run again.
	Start Trigger = "start"
	// Stop is a request to stop.
	Stop Trigger = "stop"
	// Exit is that it ended by itself, or vanished.
	Exit Trigger = "exit"
	// Leave is that its worker was done, and said so.
	Leave Trigger = "leave"
	// Remove is its deletion.
	Remove Trigger = "remove"
)

// transitions is the table.
var transitions = map[Status]map[Trigger]Status{
	Running: {Start: Running, Stop: Exited, Exit: Exited, Leave: Exited, Remove: Terminated},
	Exited:  {Start: Running, Stop: Exited, Exit: Exited, Leave: Exited, Remove: Terminated},
	// A pod that is gone stays gone.
	Terminated: {Exit: Terminated, Leave: Terminated, Remove: Terminated},
}

// Next is the status after the trigger, or a *TransitionError, which is an
// ErrConflict.
func (s Status) Next(by Trigger) (Status, error) {
	next, ok := transitions[s][by]
	if !ok {
		return s, &TransitionError{From: s, By: by}
	}
	return next, nil
}

// TransitionError says that a trigger is not possible in a status.
type TransitionError struct {
	From Status
	By   Trigger
}

func (e *TransitionError) Error() string { return fmt.Sprintf("pod: cannot %s while %s", e.By, e.From) }

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *TransitionError) Unwrap() error { return ErrConflict }
