package events

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
)

// Type is the kind's name for subscribers: "job." and the kind.
func (k Kind) Type() string { return typePrefix + string(k) }

const typePrefix = "job."

// KindOfType is the kind of a Type, "" if there is none.
func KindOfType(name string) Kind {
	for _, k := range Kinds() {
		if k.Type() == name {
			return k
		}
	}
	return ""
}

// Cloud is an event as subscribers get it: CloudEvents 1.0 in its JSON form.
type Cloud struct {
	SpecVersion string `json:"specversion"` // always "1.0"
	// ID is the same however often the event is told.
	ID string `json:"id"`
	// Source is the endpoint's path, Type one of Kind.Type, Subject the job.
	Source  string `json:"source"`
	Type    string `json:"type"`
	Subject string `json:"subject"`
	// Time is when it happened, in server time, RFC 3339.
	Time            string `json:"time"`
	DataContentType string `json:"datacontenttype"`
	// Sequence is the event's place in the log, 20 digits (the CloudEvents
	// extension of that name): later ones are greater, also as text.
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
	// Status tells how the job stands now, with its output.
	Status string `json:"status"`
}

// ID names the event: endpoint/job/attempt/run/kind. It is the same whoever
// tells the event, and however often.
func (e Event) ID() string {
	return fmt.Sprintf("%s/%s/%d/%d/%s", e.Endpoint, e.Job, e.Attempt, e.Run, e.Kind)
}

// Cloud is the event for subscribers. It has no input and no output, but the
// path where they can be read.
func (e Event) Cloud() Cloud {
	source := "/v2/" + e.Endpoint
	data := CloudData{
		Status: e.Status, Attempt: e.Attempt, Run: e.Run, Retries: e.Retries, LostWorkers: e.Lost, WorkerID: e.Worker,
		Error: e.Error, SubmittedAt: stamp(e.Submitted), QueuedAt: stamp(e.Queued), StartedAt: stamp(e.Started),
		FinishedAt: stamp(e.Finished), ReadableUntil: stamp(readableUntil(e)),
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
		Time: stamp(e.At), DataContentType: "application/json", Sequence: fmt.Sprintf("%020d", e.Seq), Data: data,
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

// FromMsg reads an event from a message that a consumer of EVENTS got.
func FromMsg(m jetstream.Msg) (Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	return parse(m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
}

// stamp is an instant with milliseconds, "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
