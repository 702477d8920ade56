package job_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

const lifecycleFile = "../../docs/job-lifecycle.md"

// statusMeans and triggerMeans are the prose; the table itself is the code's.
var statusMeans = map[job.Status]string{
	job.InQueue:    "The job waits for a worker. It has a queue message and, unless it was given back or its ttl was changed, no record yet.",
	job.InProgress: "A worker holds it: a record names the run, the worker, the deadline and the lease.",
	job.Completed:  "The handler returned. The record has the output, or says where its parts are.",
	job.Failed:     "The handler returned an error or panicked, the output was too large, or too many workers were lost. The input is kept for a retry.",
	job.TimedOut:   "A run passed its execution timeout. The input is kept for a retry.",
	job.Cancelled:  "A caller cancelled the job, purged the queue, or deleted the endpoint.",
}

var triggerMeans = map[job.Trigger]struct{ who, what string }{
	job.Claim:   {"a worker", "takes a waiting job, or takes over a job whose worker fell silent; `run` grows by one, and the clock of the execution timeout starts again"},
	job.Touch:   {"worker, caller", "changes progress, ttl or a sign of life and never the status; nobody counts it"},
	job.Succeed: {"the holder", "delivers the handler's output"},
	job.Fail:    {"the holder; the process that finds the last worker lost", "ends the attempt with an error text"},
	job.TimeOut: {"the holder; the due consumer; any reader 2 s later", "ends a run that is past its deadline"},
	job.Cancel:  {"a caller", "ends the attempt; a running handler's context ends within a second"},
	job.Release: {"a worker that stops; a gateway, of a worker that has ended", "returns the job unfinished; it waits again at once. No worker counts as lost, unless it ended by itself"},
	job.Retry:   {"a caller", "begins the next attempt under the same id, with the same input and the same ttl"},
}

// The document is what the code says; -update rewrites it.
func TestGeneratedJobLifecycle(t *testing.T) {
	for _, s := range job.Statuses() {
		if statusMeans[s] == "" {
			t.Errorf("nothing is said about the status %s", s)
		}
	}
	for _, by := range job.Triggers() {
		if triggerMeans[by].what == "" {
			t.Errorf("nothing is said about the trigger %q", by)
		}
	}
	compare(t, lifecycleFile, lifecycle(t))
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; `task gen` writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the code says; `task gen` rewrites it (-file +code):\n%s", file, diff)
	}
}

func lifecycle(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# The life of a job

<!-- Generated from shared/job by TestGeneratedJobLifecycle; ` + "`task gen`" + ` rewrites it. -->

A job has one or more attempts; each retry begins one. An attempt has one record and exactly one outcome, and may be picked up several
times: each pick-up is a run. A status changes by the table below and in one place, ` + "`shared/queue/move.go`" + `; what is not in the
table does not happen. How the writes go is in [architecture.md](architecture.md), where they go in [bus.md](bus.md).
`)
	writeDiagram(&b)
	b.WriteString(`
## Statuses

| status | over? | what it means |
|---|---|---|
`)
	for _, s := range job.Statuses() {
		over := "no"
		if s.Terminal() {
			over = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s, over, statusMeans[s])
	}
	b.WriteString("\n## Triggers\n\n| trigger | whose | what it does |\n|---|---|---|\n")
	for _, by := range job.Triggers() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", by, triggerMeans[by].who, triggerMeans[by].what)
	}
	writeTable(&b)
	writeInstants(t, &b)
	return b.String()
}

// writeDiagram draws the transitions that change the status.
func writeDiagram(b *strings.Builder) {
	b.WriteString("\n```mermaid\nstateDiagram-v2\n  [*] --> IN_QUEUE: submit\n")
	for _, from := range job.Statuses() {
		for _, by := range job.Triggers() {
			if to, err := from.Next(by); err == nil && to != from {
				fmt.Fprintf(b, "  %s --> %s: %s\n", from, to, by)
			}
		}
	}
	b.WriteString("```\n")
}

func writeTable(b *strings.Builder) {
	b.WriteString("\n## Transitions\n\nWhich status a trigger leads to; `–` means that it is refused (for a caller: 400).\n\n| |")
	for _, by := range job.Triggers() {
		fmt.Fprintf(b, " %s |", by)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(job.Triggers())) + "\n")
	for _, from := range job.Statuses() {
		fmt.Fprintf(b, "| `%s` |", from)
		for _, by := range job.Triggers() {
			to, err := from.Next(by)
			switch {
			case err != nil:
				b.WriteString(" – |")
			case to == from && by == job.Touch:
				b.WriteString(" same |")
			default:
				fmt.Fprintf(b, " `%s` |", to)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(`
Cancelling a ` + "`CANCELLED`" + ` job is answered as if it had just been cancelled. A retry of a job that waits
after a retry is answered alike, so that it may be repeated after a 503. The outcome of a run that no longer holds the
job is refused: the worker has lost its lease.
`)
}

func writeInstants(t *testing.T, b *strings.Builder) {
	t.Helper()
	unset, err := endpoint.Endpoint{ID: "any"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, `
## What time decides

All instants are the server's; no process's clock counts. What only time decides is computed, not stored. Where the server's clock is set while
a job runs, its deadline moves along.

| what | counted from | unless set | least | most | when it is over |
|---|---|---|---|---|---|
| ttl | submission | %s | %s | %s | the job is gone, whatever it does; 404 |
| ttl changed by %s | submission | | %s | %s | the same |
| execution timeout | each pick-up | %s | %s | %s | `+"`%s`"+` |
| lifetime of a run | pick-up | | | | the execution timeout or what is left of the ttl, whichever is less |
| retention | the outcome | by endpoint | | | the job is gone; 404; the ttl still ends it earlier |

A result is readable until its retention or its ttl ends, whichever comes first, to the millisecond; on disk it lives a little longer.
`, span(unset.TTL), span(job.MinTTL), span(job.MaxTTL), "`/status?ttl=`", span(job.MinChangedTTL), span(job.MaxTTL),
		span(unset.ExecutionTimeout), span(job.MinExecutionTimeout), span(job.MaxExecutionTimeout), job.TimedOut)
	fmt.Fprintf(b, `
## Sizes

| what | most |
|---|---|
| body of `+"`/run`"+` | %s |
| body of `+"`/runsync`"+` | %s |
| output | %s; a larger one is `+"`%s`"+` with `+"`%s`"+` |
| chunk | %s; a longer string is split, any other value ends the job `+"`%s`"+` with `+"`%s`"+`; a chunk that cannot be stored, with `+"`%s`"+` |
| progress | %s |
| error text | %s; a longer one is cut at a character and marked |
| `+"`s3Config`"+` | %s |
| webhook address | %s |

KB is 2^10 bytes, MB 2^20.
`, size(job.MaxRunBody), size(job.MaxRunSyncBody), size(job.MaxOutput), job.Failed, job.ErrTextOutputTooLarge,
		size(job.MaxChunk), job.Failed, job.ErrTextChunkTooLarge, job.ErrTextChunkNotStored,
		size(job.MaxProgress), size(job.MaxError), size(job.MaxS3Config), size(job.MaxWebhook))
}

// span is d in its largest whole unit.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d > day && d%day == 0:
		return fmt.Sprintf("%d d", d/day)
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func size(n int) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d KB", n>>10)
}
