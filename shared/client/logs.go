package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
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
type Logs struct {
	c        *Client
	endpoint string
	o        LogsOptions
	patience patience
	over     bool
}

// Logs prepares to read lines; All reads them.
func (c *Client) Logs(endpoint string, o LogsOptions) *Logs {
	return &Logs{c: c, endpoint: endpoint, o: o, patience: c.patienceOf(o.Patience)}
}

// Cursor is where to go on, for LogsOptions.After. It is LogsOptions.After before the
// server has answered.
func (l *Logs) Cursor() string { return l.o.After }

// All yields the lines in order, as Events.All does events.
func (l *Logs) All(ctx context.Context) iter.Seq2[LogLine, error] {
	return resumed(ctx, l.patience, func() bool { return l.over }, l.read)
}

// read reads one connection's worth. heard says whether the server took the request.
func (l *Logs) read(ctx context.Context, each func(LogLine) bool) (heard bool, err error) {
	return l.c.readEvents(ctx, l.call(), l.o.After, func(next event) (bool, error) { return l.take(next, each) })
}

func (l *Logs) call() call {
	query := url.Values{}
	if l.o.Worker != "" {
		query.Set("worker", l.o.Worker)
	}
	if !l.o.Since.IsZero() {
		query.Set("since", l.o.Since.UTC().Format(time.RFC3339Nano))
	}
	if l.o.Once {
		query.Set("follow", "false")
	}
	parts := []string{"logs"}
	if l.o.Job != "" {
		parts = append(parts, string(l.o.Job))
	}
	return call{method: http.MethodGet, path: v2(l.endpoint, parts...), query: query}
}

// take deals with one event and reports whether there may be more.
func (l *Logs) take(next event, each func(LogLine) bool) (more bool, err error) {
	if next.name == "end" {
		l.over = true
		return false, nil
	}
	if next.id != "" {
		l.o.After = next.id
	}
	if next.data == nil { // a sign of life
		return true, nil
	}
	line := LogLine{Cursor: next.id, Raw: next.data}
	if err := json.Unmarshal(next.data, &line.LogLine); err != nil {
		return false, fmt.Errorf("client: a line is not what the API promises: %w", err)
	}
	return each(line), nil
}
