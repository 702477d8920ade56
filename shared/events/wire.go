package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
	"flightline/shared/stats"
	"flightline/streams"
)

const (
	// maxEntryBytes is about how large an entry gets, an attempt with many runs
	// aside.
	maxEntryBytes = 64 << 10
	// maxInLine bounds the events of an attempt that are written together.
	maxInLine = 512
)

// wireEntry is an entry's JSON, with attempts that are encoded or of which each is a
// wireAttempt. The endpoint is in the subject.
type wireEntry[A any] struct {
	Partition int    `json:"partition,omitempty"`
	After     uint64 `json:"after"`
	wireUsual
	Attempts []A `json:"attempts"`
}

// wireUsual is what most attempts of an entry have alike, in milliseconds.
type wireUsual struct {
	// Expires is that of each attempt without its own, Retained that of each end
	// without its own. Retained 0: such an end has none.
	Expires  int64 `json:"expires,omitempty"`
	Retained int64 `json:"retained,omitempty"`
}

// usualOf is what the first attempt and the first end of a list have.
func usualOf(list []Event) wireUsual {
	u := wireUsual{Expires: msBetween(list[0].Submitted, list[0].Expires)}
	for _, e := range list {
		if !e.Kind.status().Terminal() {
			continue
		}
		if e.RetainUntil.IsZero() {
			return wireUsual{Expires: u.Expires}
		}
		u.Retained = cmp.Or(u.Retained, msBetween(e.At, e.RetainUntil))
	}
	return u
}

// retained is how long after an event of the kind its result can be read unless the
// event has its own time. 0: it has no result.
func (u wireUsual) retained(k Kind) int64 {
	if k.status().Terminal() {
		return u.Retained
	}
	return 0
}

func msBetween(from, to time.Time) int64 { return job.UnixMilli(to) - job.UnixMilli(from) }

// wireAttempt has events of one attempt that follow each other. Instants are
// milliseconds since Submitted, which are Unix milliseconds, and absent of a job that was
// submitted when its id was made, as nearly all are.
type wireAttempt struct {
	Job       job.ID      `json:"job"`
	Attempt   int         `json:"attempt,omitempty"` // 0: the first
	Mode      job.Mode    `json:"mode,omitempty"`    // "": async
	Class     job.Class   `json:"class,omitempty"`   // "": n
	Submitted *int64      `json:"submitted,omitempty"`
	Queued    int64       `json:"queued,omitempty"`
	Expires   *int64      `json:"expires,omitempty"`
	Events    []wireEvent `json:"events"`
}

// wireEvent is one event. Run, Worker, Retries, Lost and Started are those of the
// event before it in the attempt unless they are there; Started of a started event is
// its At.
type wireEvent struct {
	Kind    Kind   `json:"kind"`
	At      int64  `json:"at,omitempty"`
	Run     int    `json:"run,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Retries int    `json:"retries,omitempty"`
	Lost    int    `json:"lost,omitempty"`
	Started *int64 `json:"started,omitempty"`
	// Retained is how long after At the result of an end can be read.
	Retained *int64 `json:"retained,omitempty"`
	Error    string `json:"error,omitempty"`
	// Cause is there if it is not that of Error, which is cut off.
	Cause string `json:"cause,omitempty"`
}

// attemptOf is what e says of its attempt.
func attemptOf(e Event, usual wireUsual) wireAttempt {
	a := wireAttempt{Job: e.Job, Attempt: changed(1, e.Attempt), Mode: changed(job.Async, e.Mode), Class: changed(job.Normal, e.Class)}
	if ms := job.UnixMilli(e.Submitted); ms != a.submitted() {
		a.Submitted = &ms
	}
	a.Queued = msBetween(e.Submitted, e.Queued)
	if ms := msBetween(e.Submitted, e.Expires); ms != usual.Expires {
		a.Expires = &ms
	}
	return a
}

// changed is what is written of a value: nothing if it is what a reader takes it for.
func changed[T comparable](taken, now T) (written T) {
	if now != taken {
		written = now
	}
	return written
}

// follows reports whether e can be written behind another event of the attempt:
// nothing that is inherited has become zero.
func follows(before, e Event) bool {
	return before.Job == e.Job && before.Attempt == e.Attempt && before.Mode == e.Mode && before.Class == e.Class &&
		before.Submitted.Equal(e.Submitted) && before.Queued.Equal(e.Queued) && before.Expires.Equal(e.Expires) &&
		inherits(before.Run, e.Run) && inherits(before.Worker, e.Worker) && inherits(before.Retries, e.Retries) &&
		inherits(before.Lost, e.Lost) && inherits(job.UnixMilli(before.Started), job.UnixMilli(e.Started))
}

func inherits[T comparable](before, now T) bool {
	var zero T
	return before == zero || now != zero
}

// eventBehind is e as it is written behind another event of its attempt.
func eventBehind(before, e Event, usual wireUsual) wireEvent {
	w := wireEvent{
		Kind: e.Kind, At: msBetween(e.Submitted, e.At), Run: changed(before.Run, e.Run), Worker: changed(before.Worker, e.Worker),
		Retries: changed(before.Retries, e.Retries), Lost: changed(before.Lost, e.Lost), Error: job.Cut(e.Error, maxErrorBytes),
	}
	if e.Cause != "" && e.Cause != stats.Cause(w.Error) {
		w.Cause = e.Cause
	}
	started := before.Started
	if e.Kind == Started {
		started = e.At
	}
	if !e.Started.Equal(started) {
		ms := msBetween(e.Submitted, e.Started)
		w.Started = &ms
	}
	if ms := msBetween(e.At, e.RetainUntil); !e.RetainUntil.IsZero() && (ms == 0 || ms != usual.retained(e.Kind)) {
		w.Retained = &ms
	}
	return w
}

// line is the JSON of events of one attempt, and which of them it has.
type line struct {
	text   json.RawMessage
	events []Event
}

// linesOf writes a list of one endpoint's events for entries with what is usual.
func linesOf(list []Event, usual wireUsual) ([]line, error) {
	var lines []line
	for len(list) > 0 {
		n := 1
		for n < min(len(list), maxInLine) && follows(list[n-1], list[n]) {
			n++
		}
		a, before := attemptOf(list[0], usual), Event{}
		for _, e := range list[:n] {
			a.Events = append(a.Events, eventBehind(before, e, usual))
			before = e
		}
		text, err := json.Marshal(a)
		if err != nil {
			return nil, fmt.Errorf("encode events of job %s: %w", list[0].Job, err)
		}
		lines, list = append(lines, line{text, list[:n]}), list[n:]
	}
	return lines, nil
}

// entriesOf writes events of one endpoint as messages of the log.
func entriesOf(list []Event, partition int, after uint64) ([]*nats.Msg, error) {
	usual := usualOf(list)
	lines, err := linesOf(list, usual)
	if err != nil {
		return nil, err
	}
	var messages []*nats.Msg
	for len(lines) > 0 {
		n, size, events := 0, 0, 0
		for n < len(lines) && (n == 0 || size+len(lines[n].text) <= maxEntryBytes && events+len(lines[n].events) <= maxInEntry) {
			size, events = size+len(lines[n].text), events+len(lines[n].events)
			n++
		}
		w, kinds := wireEntry[json.RawMessage]{Partition: partition, After: after, wireUsual: usual}, map[string]bool{}
		for _, l := range lines[:n] {
			w.Attempts = append(w.Attempts, l.text)
			for _, e := range l.events {
				kinds[string(e.Kind)] = true
			}
		}
		body, err := json.Marshal(w)
		if err != nil {
			return nil, fmt.Errorf("encode events of %s: %w", list[0].Endpoint, err)
		}
		subject := streams.EntrySubject(list[0].Endpoint, func(kind string) bool { return kinds[kind] })
		messages, lines = append(messages, &nats.Msg{Subject: subject, Header: nats.Header{}, Data: body}), lines[n:]
	}
	return messages, nil
}

func parseEntry(subject string, body []byte) (Entry, error) {
	endpoint, err := streams.ParseEntry(subject)
	if err != nil {
		return Entry{}, err
	}
	var w wireEntry[wireAttempt]
	if err := json.Unmarshal(body, &w); err != nil {
		return Entry{}, err
	}
	entry := Entry{Endpoint: endpoint, Partition: w.Partition, After: w.After}
	for _, a := range w.Attempts {
		entry.Events = append(entry.Events, a.list(endpoint, w.wireUsual)...)
	}
	if n := len(entry.Events); n == 0 || n > maxInEntry {
		return Entry{}, fmt.Errorf("the entry has %d events, not 1 to %d", n, maxInEntry)
	}
	return entry, nil
}

// submitted is when the job was, in Unix milliseconds.
func (a wireAttempt) submitted() int64 {
	if a.Submitted != nil {
		return *a.Submitted
	}
	made, _ := a.Job.Made()
	return job.UnixMilli(made)
}

// list are the events of an attempt.
func (a wireAttempt) list(endpoint string, usual wireUsual) []Event {
	submitted := a.submitted()
	since := func(ms int64) time.Time { return job.FromUnixMilli(submitted + ms) }
	e := Event{
		Endpoint: endpoint, Job: a.Job, Attempt: max(1, a.Attempt), Mode: cmp.Or(a.Mode, job.Async), Class: cmp.Or(a.Class, job.Normal),
		Submitted: since(0), Queued: since(a.Queued), Expires: since(usual.Expires),
	}
	if a.Expires != nil {
		e.Expires = since(*a.Expires)
	}
	list := make([]Event, 0, len(a.Events))
	for _, w := range a.Events {
		e.Kind, e.At, e.Error, e.Status = w.Kind, since(w.At), w.Error, w.Kind.status()
		e.Cause, e.Finished, e.RetainUntil = cmp.Or(w.Cause, stats.Cause(w.Error)), time.Time{}, time.Time{}
		if e.Status.Terminal() {
			e.Finished = e.At
		}
		if ms := usual.retained(w.Kind); w.Retained != nil {
			e.RetainUntil = since(w.At + *w.Retained)
		} else if ms != 0 {
			e.RetainUntil = since(w.At + ms)
		}
		e.Run, e.Worker = cmp.Or(w.Run, e.Run), cmp.Or(w.Worker, e.Worker)
		e.Retries, e.Lost = cmp.Or(w.Retries, e.Retries), cmp.Or(w.Lost, e.Lost)
		switch {
		case w.Started != nil:
			e.Started = since(*w.Started)
		case w.Kind == Started:
			e.Started = e.At
		}
		list = append(list, e)
	}
	return list
}

// status is the one that an event of the kind leads to, "" of an unknown kind.
func (k Kind) status() job.Status {
	switch k {
	case Queued:
		return job.InQueue
	case Started:
		return job.InProgress
	case Completed:
		return job.Completed
	case Failed:
		return job.Failed
	case Cancelled:
		return job.Cancelled
	case TimedOut:
		return job.TimedOut
	}
	return ""
}

// wireSingle is the JSON of one event as a version before docs/adr/0057 wrote it;
// the subject has the rest. Instants are Unix milliseconds.
type wireSingle struct {
	At          int64      `json:"at"`
	Mode        job.Mode   `json:"mode"`
	Class       job.Class  `json:"class"`
	Status      job.Status `json:"status"`
	Worker      string     `json:"worker"`
	Retries     int        `json:"retries"`
	Lost        int        `json:"lost"`
	Submitted   int64      `json:"submitted"`
	Queued      int64      `json:"queued"`
	Started     int64      `json:"started"`
	Finished    int64      `json:"finished"`
	Expires     int64      `json:"expires"`
	RetainUntil int64      `json:"retainUntil"`
	Error       string     `json:"error"`
}

func parseSingle(subject string, body []byte) (Entry, error) {
	endpoint, kind, id, attempt, run, err := streams.ParseEvent(subject)
	if err != nil {
		return Entry{}, err
	}
	var w wireSingle
	if err := json.Unmarshal(body, &w); err != nil {
		return Entry{}, err
	}
	return Entry{Endpoint: endpoint, Partition: -1, Events: []Event{{
		Kind: Kind(kind), Endpoint: endpoint, Job: id, Attempt: attempt, Run: run, At: job.FromUnixMilli(w.At),
		Mode: w.Mode, Class: w.Class, Status: w.Status, Worker: w.Worker, Retries: w.Retries, Lost: w.Lost,
		Submitted: job.FromUnixMilli(w.Submitted), Queued: job.FromUnixMilli(w.Queued), Started: job.FromUnixMilli(w.Started), Finished: job.FromUnixMilli(w.Finished),
		Expires: job.FromUnixMilli(w.Expires), RetainUntil: job.FromUnixMilli(w.RetainUntil), Error: w.Error, Cause: stats.Cause(w.Error),
	}}}, nil
}
