package job_test

import (
	"errors"
	"testing"

	"flightline/shared/job"
)

// lives is the table of transitions (docs/design/data-model.md#triggers), written
// a second time by hand, so that no transition changes by accident.
var lives = map[job.Status]map[job.Trigger]job.Status{
	job.InQueue: {
		job.Claim:  job.InProgress,
		job.Touch:  job.InQueue,
		job.Cancel: job.Cancelled,
	},
	job.InProgress: {
		job.Claim:   job.InProgress,
		job.Touch:   job.InProgress,
		job.Succeed: job.Completed,
		job.Fail:    job.Failed,
		job.TimeOut: job.TimedOut,
		job.Cancel:  job.Cancelled,
		job.Release: job.InQueue,
	},
	job.Completed: {job.Touch: job.Completed},
	job.Failed:    {job.Touch: job.Failed, job.Retry: job.InQueue},
	job.TimedOut:  {job.Touch: job.TimedOut, job.Retry: job.InQueue},
	job.Cancelled: {job.Touch: job.Cancelled},
}

func TestEachTriggerInEachStatus(t *testing.T) {
	for _, from := range job.Statuses() {
		for _, by := range job.Triggers() {
			t.Run(string(from)+"/"+string(by), func(t *testing.T) {
				want, possible := lives[from][by]
				got, err := from.Next(by)
				if !possible {
					checkRefused(t, from, by, got, err)
					return
				}
				if err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			})
		}
	}
}

func checkRefused(t *testing.T, from job.Status, by job.Trigger, got job.Status, err error) {
	t.Helper()
	var refused *job.TransitionError
	if !errors.As(err, &refused) || !errors.Is(err, job.ErrConflict) {
		t.Fatalf("got %q, %v, want a *TransitionError that is ErrConflict", got, err)
	}
	if got != from {
		t.Errorf("got status %q with the error, want the old one, %q", got, from)
	}
	if want := (job.TransitionError{From: from, By: by}); *refused != want {
		t.Errorf("got %+v, want %+v", *refused, want)
	}
}

func TestOnlyRetryLeadsOutOfATerminalStatus(t *testing.T) {
	for _, from := range job.Statuses() {
		for _, by := range job.Triggers() {
			to, err := from.Next(by)
			if err == nil && from.Terminal() && to != from && by != job.Retry {
				t.Errorf("%s by %s: got %s, want nothing to follow an outcome but a retry", from, by, to)
			}
		}
	}
}

func TestTouchChangesNoStatus(t *testing.T) {
	for _, from := range job.Statuses() {
		if to, err := from.Next(job.Touch); err != nil || to != from {
			t.Errorf("touch in %s: got %s, %v, want no change", from, to, err)
		}
	}
}

func TestStatusKnowsItself(t *testing.T) {
	tests := map[job.Status]struct{ terminal, valid bool }{
		job.InQueue:    {false, true},
		job.InProgress: {false, true},
		job.Completed:  {true, true},
		job.Failed:     {true, true},
		job.TimedOut:   {true, true},
		job.Cancelled:  {true, true},
		"":             {false, false},
		"completed":    {false, false},
		"CANCELED":     {false, false},
	}
	for s, want := range tests {
		if got := s.Terminal(); got != want.terminal {
			t.Errorf("%q terminal: got %v, want %v", s, got, want.terminal)
		}
		if got := s.Valid(); got != want.valid {
			t.Errorf("%q valid: got %v, want %v", s, got, want.valid)
		}
	}
}

func TestUnknownStatusesAndTriggersLeadNowhere(t *testing.T) {
	for _, by := range job.Triggers() {
		if got, err := job.Status("LOST").Next(by); !errors.Is(err, job.ErrConflict) {
			t.Errorf("unknown status by %s: got %q, %v, want ErrConflict", by, got, err)
		}
	}
	for _, from := range job.Statuses() {
		if got, err := from.Next("forget"); !errors.Is(err, job.ErrConflict) {
			t.Errorf("%s by an unknown trigger: got %q, %v, want ErrConflict", from, got, err)
		}
	}
}

func TestTransitionErrorSaysWhatMetWhat(t *testing.T) {
	_, err := job.Completed.Next(job.Cancel)
	if err == nil || err.Error() != "job: cannot cancel while COMPLETED" {
		t.Errorf("got %v", err)
	}
}
