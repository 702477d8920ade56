package events

import (
	"fmt"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
)

// Kind is what happened; a token of the event's subject.
type Kind string

// The kinds. Queued and Started precede the others; of the last four an
// attempt has at most one, and nothing follows it.
const (
	// Queued: the attempt began to wait. It is recorded with the first record of
	// the attempt: a job that expired unseen has no event.
	Queued Kind = "queued"
	// Started: a run began.
	Started   Kind = "started"
	Completed Kind = "completed"
	Failed    Kind = "failed"
	Cancelled Kind = "cancelled"
	TimedOut  Kind = "timed_out"
)

// Kinds lists every kind, in the order of a job's life.
func Kinds() []Kind { return []Kind{Queued, Started, Completed, Failed, Cancelled, TimedOut} }

// KindOf is the kind that ends an attempt in the status, "" if none does.
func KindOf(s job.Status) Kind {
	for _, k := range Kinds() {
		if s.Terminal() && k.status() == s {
			return k
		}
	}
	return ""
}

// Event is one thing that happened to an attempt of a job. It has no input,
// output, s3Config or webhook address.
type Event struct {
	Kind     Kind
	Endpoint string
	Job      job.ID
	// Attempt counts from 1. Run is 0 for Queued, the run for Started, and for
	// an end the run that was the last, 0 if there was none.
	Attempt, Run int
	// At is when it happened, in server time. A Started so long ago that the
	// record has forgotten it has the time of the event before it.
	At time.Time

	// Seq is the event's place in the log, later ones have greater ones (Cursor is
	// its text); Written is when it got there. They are set on reading.
	Seq     uint64
	Written time.Time

	Mode   job.Mode
	Class  job.Class
	Status job.Status // that the event led to
	// Worker is the one of the run, "" for Queued and for a run that another
	// had followed before it was recorded.
	Worker string
	// Retries counts the extra pick-ups of all attempts so far, Lost the
	// workers that the attempt lost.
	Retries, Lost int
	// What is not yet, or not known, is zero.
	Submitted, Queued, Started, Finished, Expires, RetainUntil time.Time
	// Error is that of an attempt that failed, at most 1 KB of it; Cause is the line of
	// the whole error that says what went wrong (stats.Cause).
	Error, Cause string
}

// maxErrorBytes is how much of an error text an event keeps, in bytes.
const maxErrorBytes = 1 << 10

// Type is the kind's name for subscribers: "job." and the kind.
func (k Kind) Type() string { return typePrefix + string(k) }

const typePrefix = "job."

// Cloud is an event as subscribers get it: CloudEvents 1.0 in its JSON form.
type Cloud struct {
	SpecVersion string `json:"specversion"` // always "1.0"
	// ID is the same however often the event is delivered.
	ID string `json:"id"`
	// Source is the endpoint's path, Type one of Kind.Type, Subject the job.
	Source  string `json:"source"`
	Type    string `json:"type"`
	Subject string `json:"subject"`
	// Time is when it happened, in server time, RFC 3339.
	Time            string `json:"time"`
	DataContentType string `json:"datacontenttype"`
	// Sequence is Event.Seq, 20 digits (the CloudEvents extension of that name):
	// later ones are greater, also as text.
	Sequence string    `json:"sequence"`
	Data     CloudData `json:"data"`
}

// CloudData is what happened. Instants are RFC 3339 in UTC, times between them
// milliseconds; what is not, or not yet, is left out.
type CloudData struct {
	Status  job.Status `json:"status"` // that the event led to
	Attempt int        `json:"attempt"`
	// Run is the pick-up within the attempt, 0 before the first.
	Run     int `json:"run"`
	Retries int `json:"retries"` // extra pick-ups of all attempts so far
	// LostWorkers are those that the attempt lost.
	LostWorkers   int    `json:"lostWorkers,omitempty"`
	WorkerID      string `json:"workerId,omitempty"`
	DelayTime     *int64 `json:"delayTime,omitempty"`
	ExecutionTime *int64 `json:"executionTime,omitempty"`
	// Error is that of an attempt that failed, at most 1 KB of it.
	Error       string `json:"error,omitempty"`
	SubmittedAt string `json:"submittedAt"`
	QueuedAt    string `json:"queuedAt"`
	StartedAt   string `json:"startedAt,omitempty"`
	FinishedAt  string `json:"finishedAt,omitempty"`
	// ReadableUntil is when the result can no longer be read, at the latest.
	ReadableUntil string     `json:"readableUntil,omitempty"`
	Links         CloudLinks `json:"links"`
}

// CloudLinks are paths on the server.
type CloudLinks struct {
	// Status says how the job stands now, with its output.
	Status string `json:"status"`
}

// ID names the event: endpoint/job/attempt/run/kind. It is the same
// however often the event is delivered, and by which process.
func (e Event) ID() string {
	return fmt.Sprintf("%s/%s/%d/%d/%s", e.Endpoint, e.Job, e.Attempt, e.Run, e.Kind)
}

// Cloud is the event for subscribers. It has no input and no output, but the
// path where they can be read.
func (e Event) Cloud() Cloud {
	source := "/v2/" + e.Endpoint
	data := CloudData{
		Status: e.Status, Attempt: e.Attempt, Run: e.Run, Retries: e.Retries, LostWorkers: e.Lost, WorkerID: e.Worker,
		Error: e.Error, SubmittedAt: api.FormatTime(e.Submitted), QueuedAt: api.FormatTime(e.Queued), StartedAt: api.FormatTime(e.Started),
		FinishedAt: api.FormatTime(e.Finished), ReadableUntil: api.FormatTime(readableUntil(e)),
		Links: CloudLinks{Status: source + "/status/" + string(e.Job)},
	}
	j := job.Job{Queued: e.Queued, Started: e.Started, Finished: e.Finished}
	if !e.Started.IsZero() || e.Status.Terminal() {
		delay := j.Delay().Milliseconds()
		data.DelayTime = &delay
	}
	if e.Status.Terminal() {
		execution := j.Execution(e.Finished).Milliseconds()
		data.ExecutionTime = &execution
	}
	return Cloud{
		SpecVersion: "1.0", ID: e.ID(), Source: source, Type: e.Kind.Type(), Subject: string(e.Job),
		Time: api.FormatTime(e.At), DataContentType: "application/json", Sequence: fmt.Sprintf("%020d", e.Seq), Data: data,
	}
}

// readableUntil is the earlier of retention and ttl, zero while the job is not
// over.
func readableUntil(e Event) time.Time {
	if !e.Status.Terminal() {
		return time.Time{}
	}
	j := job.Job{RetainUntil: e.RetainUntil, Expires: e.Expires}
	return j.GoneAt()
}
