package client

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"flightline/shared/job"
)

// EventsOptions say which events of an endpoint are wanted. The zero value
// follows those of all jobs, from now on.
type EventsOptions struct {
	// Job narrows them to one job. "" means all.
	Job job.ID
	// Types are those wanted, as "job.failed". None means all.
	Types []string
	// After is the Cursor of an event: they begin behind it; "0" is the
	// beginning of what the server keeps. It wins over Since.
	After string
	// Since begins with what was recorded at that time or later. With neither, they
	// begin now.
	Since time.Time
	// Once ends them with the last event of now.
	Once bool
	// Patience is how long the server may be away once it has answered. 0 means
	// a minute; less than 0: not at all. Before that WithPatience holds.
	Patience time.Duration
}

// Event is what happened to a job.
type Event struct {
	// Cursor is its place; see EventsOptions.After.
	Cursor string
	// ID is the same however often the event is delivered, Type as "job.failed".
	ID, Type string
	Endpoint string
	Job      job.ID
	Time     time.Time
	Status   job.Status // that it led to
	// Attempt counts from 1; Run is the pick-up within it, 0 before the first.
	Attempt, Run int
	WorkerID     string
	Error        string
	// Raw is the event itself, CloudEvents 1.0 in JSON.
	Raw json.RawMessage
}

// Events reads what happens to an endpoint's jobs. It is for one goroutine.
type Events struct{ followed }

// Events prepares to read events; All reads them. The endpoint "" means all endpoints that
// the key may read; it narrows to no Job.
func (c *Client) Events(endpoint string, o EventsOptions) *Events {
	op := followCall(endpoint, "events", o.Job, o.Since, o.Once)
	if len(o.Types) > 0 {
		op.query.Set("type", strings.Join(o.Types, ","))
	}
	return &Events{followed{c: c, op: op, after: o.After, patience: c.patienceOf(o.Patience)}}
}

// Cursor is where to go on, for EventsOptions.After: that of the last event
// that All yielded, or of a later one, not wanted. It is
// EventsOptions.After before the server has answered.
func (e *Events) Cursor() string { return e.after }

// All yields the events in order, each once, as they come, until ctx ends or,
// with Once, to the last one. It goes on where it was when the connection
// breaks or the server restarts. An error is yielded last: an *Error,
// ErrUnreachable, or ctx's. After an error, or a break out of the loop, All may
// be called again and goes on behind Cursor.
func (e *Events) All(ctx context.Context) iter.Seq2[Event, error] {
	return follow(ctx, &e.followed, eventOf)
}

// eventOf reads an event.
func eventOf(next event) (Event, error) {
	var wire struct {
		ID      string    `json:"id"`
		Source  string    `json:"source"`
		Type    string    `json:"type"`
		Subject job.ID    `json:"subject"`
		Time    time.Time `json:"time"`
		Data    struct {
			Status   job.Status `json:"status"`
			Attempt  int        `json:"attempt"`
			Run      int        `json:"run"`
			WorkerID string     `json:"workerId"`
			Error    string     `json:"error"`
		} `json:"data"`
	}
	err := json.Unmarshal(next.data, &wire)
	return Event{
		Cursor: next.id, ID: wire.ID, Type: wire.Type, Endpoint: strings.TrimPrefix(wire.Source, "/v2/"), Job: wire.Subject, Time: wire.Time, Status: wire.Data.Status,
		Attempt: wire.Data.Attempt, Run: wire.Data.Run, WorkerID: wire.Data.WorkerID, Error: wire.Data.Error, Raw: next.data,
	}, err
}
