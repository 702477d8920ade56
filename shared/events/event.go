package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

// Kind is what happened; a token of the event's subject.
type Kind string

// The kinds. Queued and Started precede the others; of the last four an
// attempt has at most one, and nothing follows it.
const (
	// Queued: the attempt began to wait. It is told with the first record of
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
	switch s {
	case job.Completed:
		return Completed
	case job.Failed:
		return Failed
	case job.Cancelled:
		return Cancelled
	case job.TimedOut:
		return TimedOut
	case job.InQueue, job.InProgress:
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
	// At is when it happened, in server time. A Started so long ago that
	// nobody remembers has the time of the event before it.
	At time.Time

	// Seq and Written are the event's place in EVENTS and when it got there.
	// They are set on reading.
	Seq     uint64
	Written time.Time

	Mode   job.Mode
	Class  job.Class
	Status job.Status // that the event led to
	// Worker is the one of the run, "" for Queued and for a run that another
	// had followed before it was told.
	Worker string
	// Retries counts the extra pick-ups of all attempts so far, Lost the
	// workers that the attempt lost.
	Retries, Lost int
	// What is not yet, or not known, is zero.
	Submitted, Queued, Started, Finished, Expires, RetainUntil time.Time
	// Error is that of an attempt that failed, at most 1 KB of it.
	Error string
}

// errorMost is how much of an error text an event keeps, in bytes.
const errorMost = 1 << 10

// wire is an event's JSON; the subject tells the rest. Instants are Unix
// milliseconds.
type wire struct {
	At          int64      `json:"at"`
	Mode        job.Mode   `json:"mode"`
	Class       job.Class  `json:"class"`
	Status      job.Status `json:"status"`
	Worker      string     `json:"worker,omitempty"`
	Retries     int        `json:"retries,omitempty"`
	Lost        int        `json:"lost,omitempty"`
	Submitted   int64      `json:"submitted"`
	Queued      int64      `json:"queued"`
	Started     int64      `json:"started,omitempty"`
	Finished    int64      `json:"finished,omitempty"`
	Expires     int64      `json:"expires"`
	RetainUntil int64      `json:"retainUntil,omitempty"`
	Error       string     `json:"error,omitempty"`
}

// message encodes e. Its place must be empty.
func (e Event) message() (*nats.Msg, error) {
	body, err := json.Marshal(wire{
		At: milli(e.At), Mode: e.Mode, Class: e.Class, Status: e.Status, Worker: e.Worker, Retries: e.Retries, Lost: e.Lost,
		Submitted: milli(e.Submitted), Queued: milli(e.Queued), Started: milli(e.Started), Finished: milli(e.Finished),
		Expires: milli(e.Expires), RetainUntil: milli(e.RetainUntil), Error: cut(e.Error),
	})
	if err != nil {
		return nil, fmt.Errorf("encode event %s of job %s: %w", e.Kind, e.Job, err)
	}
	return &nats.Msg{
		Subject: streams.EventSubject(e.Endpoint, string(e.Kind), e.Job, e.Attempt, e.Run),
		Header:  nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}},
		Data:    body,
	}, nil
}

// Check returns an error if m, a message of EVENTS as bus.BatchGet read it, is
// no event.
func Check(m *nats.Msg) error {
	_, err := decode(m)
	return err
}

// decode reads an event as a direct get brings it.
func decode(m *nats.Msg) (Event, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("read event: sequence: %w", err)
	}
	written, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return Event{}, fmt.Errorf("read event %d: time: %w", seq, err)
	}
	return parse(m.Header.Get(jetstream.SubjectHeader), m.Data, seq, written)
}

func parse(subject string, body []byte, seq uint64, written time.Time) (Event, error) {
	endpoint, kind, id, attempt, run, err := streams.ParseEvent(subject)
	if err != nil {
		return Event{}, fmt.Errorf("read event %d: %w", seq, err)
	}
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		return Event{}, fmt.Errorf("read event %d: %w", seq, err)
	}
	return Event{
		Kind: Kind(kind), Endpoint: endpoint, Job: id, Attempt: attempt, Run: run, At: instant(w.At), Seq: seq, Written: written,
		Mode: w.Mode, Class: w.Class, Status: w.Status, Worker: w.Worker, Retries: w.Retries, Lost: w.Lost,
		Submitted: instant(w.Submitted), Queued: instant(w.Queued), Started: instant(w.Started), Finished: instant(w.Finished),
		Expires: instant(w.Expires), RetainUntil: instant(w.RetainUntil), Error: w.Error,
	}, nil
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// cut shortens an error text at a character boundary.
func cut(text string) string {
	if len(text) <= errorMost {
		return text
	}
	end := errorMost
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
