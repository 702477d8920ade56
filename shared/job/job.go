package job

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// ErrNotFound means that no job of that id exists: never submitted, expired by
// its ttl, or past its retention.
var ErrNotFound = errors.New("job: not found")

// ID names a job. It is opaque to clients, matches [A-Za-z0-9_-]{1,128}, and
// begins with "sync-" if the job was submitted by /runsync
// (docs/design/product.md#ids).
type ID string

// SyncPrefix begins the id of a job submitted by /runsync (the contract).
const SyncPrefix = "sync-"

// maxID is the longest id, in bytes.
const maxID = 128

// Valid reports whether id may name a job. Anything else is unknown.
func (id ID) Valid() bool {
	for _, c := range []byte(id) { // every request asks; a regexp takes 20 times as long
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= maxID
}

// Made is when the id was made up, by the clock of the process that took the job: a
// UUID of version 7 says so. ok is false for another id.
func (id ID) Made() (at time.Time, ok bool) {
	const hyphen, version, length = 8, 14, 36
	text := strings.TrimPrefix(string(id), SyncPrefix)
	if len(text) != length || text[hyphen] != '-' || text[version] != '7' {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(text[:hyphen]+text[hyphen+1:version-1], 16, 64)
	return time.UnixMilli(ms), err == nil
}

// MadeWithin is when the ids were made up that begin with a text, as Made says: from the
// instant from on, and before to. The text is one hexadecimal digit of such an id or more,
// in lower case, with its hyphens, and with or without SyncPrefix. ok is false for another
// text.
func MadeWithin(prefix string) (from, to time.Time, ok bool) {
	const least, most = "00000000-0000-7000-8000-000000000000", "ffffffff-ffff-7fff-bfff-ffffffffffff"
	text := strings.TrimPrefix(prefix, SyncPrefix)
	if text == "" || len(text) > len(least) {
		return from, to, false
	}
	for i := range len(text) {
		low, high, c := least[i], most[i], text[i]
		if digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'; c < low || c > high || digit == (low == '-') {
			return from, to, false
		}
	}
	from, _ = ID(text + least[len(text):]).Made()
	to, _ = ID(text + most[len(text):]).Made()
	return from, to.Add(time.Millisecond), true
}

// Begins reports whether the id begins with a text, which may lack SyncPrefix.
func (id ID) Begins(text string) bool {
	return strings.HasPrefix(string(id), text) || strings.HasPrefix(strings.TrimPrefix(string(id), SyncPrefix), text)
}

// Mode is how a job was submitted; it decides the retention.
type Mode string

// The two ways of submission.
const (
	Async Mode = "async"
	Sync  Mode = "sync"
)

// Class is the priority class, one subject token of the queue.
type Class string

// Normal jobs go first. LowPriority ones are waited on last and never counted
// by the autoscaler (docs/design/product.md#low-priority).
const (
	Normal      Class = "n"
	LowPriority Class = "l"
)

// Classes lists the classes in the order in which they are handed out.
func Classes() []Class { return []Class{Normal, LowPriority} }

// Job is one attempt of a job as its record, or its queue message while it has
// no record, says. The zero time means "not yet" or "not at all".
type Job struct {
	ID       ID
	Endpoint string
	Status   Status
	Mode     Mode
	Class    Class

	// Attempt counts from 1; each retry adds one.
	Attempt int
	// Run counts the pick-ups of this attempt; 0 before the first.
	Run int
	// Lost counts the workers that this attempt lost.
	Lost int
	// Earlier counts the pick-ups of all attempts before this one.
	Earlier int

	Submitted time.Time
	// Queued is when this attempt began to wait: Submitted, or the retry.
	Queued time.Time
	// Started is the pick-up of the current or last run, zero before the first, and if the
	// job was cancelled while it waited.
	Started time.Time
	// Finished is when the attempt reached a terminal status.
	Finished time.Time
	// Deadline is Started plus ExecutionTimeout while a run holds the job.
	Deadline time.Time
	// Expires ends the job in any status (the contract's ttl).
	Expires time.Time
	// RetainUntil ends the time in which a terminal record can be read.
	RetainUntil time.Time

	ExecutionTimeout time.Duration
	Worker           string
	Webhook          string

	// Trace is the W3C trace context of the request that queued this attempt, or that its
	// trace is not recorded, as package telemetry writes it; "" for no trace.
	Trace string
	// Origin is that of the submission, if Trace is a retry's.
	Origin string

	// Output is the result, or while IN_PROGRESS the last progress. It is
	// empty before the first, and if it is stored beside the record, until it is
	// loaded.
	Output json.RawMessage
	Error  string
}

// Retries counts the extra pick-ups of all attempts
// (docs/design/product.md#lost-workers-and-retries).
func (j *Job) Retries() int { return max(0, j.Earlier+j.Run-1) }

// Delay is the time the attempt waited before its current or last run, 0 if it
// was never picked up.
func (j *Job) Delay() time.Duration {
	if j.Started.IsZero() {
		return 0
	}
	return max(0, j.Started.Sub(j.Queued))
}

// Execution is how long the current or last run took, up to now while it runs.
func (j *Job) Execution(now time.Time) time.Duration {
	switch {
	case j.Started.IsZero():
		return 0
	case j.Finished.IsZero():
		return max(0, now.Sub(j.Started))
	}
	return max(0, j.Finished.Sub(j.Started))
}

// Visible reports whether a caller at now may still see the job: before its
// ttl and, once terminal, within its retention.
func (j *Job) Visible(now time.Time) bool { return now.Before(j.GoneAt()) }

// Overdue reports whether the run that holds the job is past its deadline.
func (j *Job) Overdue(now time.Time) bool {
	return j.Status == InProgress && !j.Deadline.IsZero() && !now.Before(j.Deadline)
}

// GoneAt is the instant at which the job stops being visible if nothing more
// happens to it.
func (j *Job) GoneAt() time.Time {
	if !j.RetainUntil.IsZero() && j.RetainUntil.Before(j.Expires) {
		return j.RetainUntil
	}
	return j.Expires
}
