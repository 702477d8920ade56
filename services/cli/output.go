package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"flightline/shared/client"
)

// show writes an answer: v as JSON, or the rows as a table. The first row of
// several columns is the heading.
func (sh *shell) show(v any, rows [][]string) error {
	if sh.flags.output == "json" {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		_, err = fmt.Fprintf(sh.Out, "%s\n", data)
		return err
	}
	w := tabwriter.NewWriter(sh.Out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// checkOutput refuses a format that does not exist before anything is done.
func (sh *shell) checkOutput() error {
	if sh.flags.output == "table" || sh.flags.output == "json" {
		return nil
	}
	return &UsageError{fmt.Errorf("-o %s: must be table or json", sh.flags.output)}
}

func (sh *shell) showJob(j *client.Job) error {
	rows := [][]string{{"ID", string(j.ID)}, {"STATUS", string(j.Status)}}
	for _, row := range []struct {
		name, text string
		has        bool
	}{
		{"DELAY", j.Delay.String(), j.Delay > 0 || j.Status.Terminal()},
		{"EXECUTION", j.Execution.String(), j.Execution > 0 || j.Status.Terminal()},
		{"WORKER", clean(j.WorkerID), j.WorkerID != ""},
		{"RETRIES", fmt.Sprint(j.Retries), j.Retries > 0},
		{"ERROR", clean(j.Error), j.Error != ""},
		{"OUTPUT", oneLine(j.Output), len(j.Output) > 0},
	} {
		if row.has {
			rows = append(rows, []string{row.name, row.text})
		}
	}
	return sh.show(j, rows)
}

func (sh *shell) showHealth(h client.Health) error {
	rows := [][]string{{"JOBS", "", "WORKERS", ""}}
	jobs := []count{
		{"in queue", h.Jobs.InQueue},
		{"in progress", h.Jobs.InProgress},
		{"completed", h.Jobs.Completed},
		{"failed", h.Jobs.Failed},
		{"retried", h.Jobs.Retried},
		{},
	}
	workers := []count{
		{"idle", h.Workers.Idle},
		{"running", h.Workers.Running},
		{"ready", h.Workers.Ready},
		{"initializing", h.Workers.Initializing},
		{"throttled", h.Workers.Throttled},
		{"unhealthy", h.Workers.Unhealthy},
	}
	for i := range workers {
		rows = append(rows, append(jobs[i].cells(), workers[i].cells()...))
	}
	return sh.show(h, rows)
}

type count struct {
	name string
	n    int
}

func (c count) cells() []string {
	if c.name == "" {
		return []string{"", ""}
	}
	return []string{c.name, fmt.Sprint(c.n)}
}

// oneLine is a document without the white space that a worker put between its
// parts.
func oneLine(document json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, document); err != nil {
		return clean(string(document))
	}
	return clean(line.String())
}

// clean keeps text from a worker from moving the cursor or breaking the table.
// Some terminals obey also the control characters beyond ASCII.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
