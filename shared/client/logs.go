package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
)

// LogsOptions say which lines of an endpoint's workers are wanted. The zero value
// follows those of all workers, from now on.
type LogsOptions struct {
	// Job narrows them to those that name a job, from its submission to a little after
	// its end. "" means all.
	Job job.ID
	// Worker narrows them to one worker. "" means all.
	Worker string
	// After is the Cursor of a line: they begin behind it; "0" is the beginning of what
	// the server keeps.
	After string
	// Since leaves out what was printed before. With neither, and no Job, they begin now.
	Since time.Time
	// Once ends them with the last line of now.
	Once bool
	// Patience is as in EventsOptions.
	Patience time.Duration
}

// LogLine is a line that a worker printed.
type LogLine struct {
	api.LogLine
	// Cursor is its place; see LogsOptions.After.
	Cursor string
	// Raw is the line as the server sent it, in JSON.
	Raw json.RawMessage
}

// Logs reads what an endpoint's workers print. It is for one goroutine.
type Logs struct{ followed }

// Logs prepares to read lines; All reads them.
func (c *Client) Logs(endpoint string, o LogsOptions) *Logs {
	op := followCall(endpoint, "logs", o.Job, o.Since, o.Once)
	if o.Worker != "" {
		op.query.Set("worker", o.Worker)
	}
	return &Logs{followed{c: c, op: op, after: o.After, patience: c.patienceOf(o.Patience)}}
}

// Cursor is where to go on, for LogsOptions.After. It is LogsOptions.After before the
// server has answered.
func (l *Logs) Cursor() string { return l.after }

// All yields the lines in order, as Events.All does events.
func (l *Logs) All(ctx context.Context) iter.Seq2[LogLine, error] {
	return follow(ctx, &l.followed, lineOf)
}

// lineOf reads a line.
func lineOf(next event) (LogLine, error) {
	line := LogLine{Cursor: next.id, Raw: next.data}
	err := json.Unmarshal(next.data, &line.LogLine)
	return line, err
}
