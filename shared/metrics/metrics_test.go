package metrics_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/metrics"
	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "rewrite generated documents")

const head = `# Metrics

<!-- Generated from shared/metrics by TestGeneratedTable; ` + "`task gen`" + ` rewrites it. -->

Each process answers ` + "`/metrics`" + ` on a listener of its own (` + "`--metrics-listen`" + `), with those of Go and of the process besides. It has no key:
keep it off public networks. Counters count what this process did since its start: use ` + "`rate`" + ` and ` + "`sum`" + `. Gauges of endpoints are the
same at every ` + "`api`" + ` process: use ` + "`max by (endpoint)`" + `; they are as old as those of ` + "`/health`" + `, and what cannot be read is left out. No label has the
id of a job. A deleted endpoint loses its series; beyond 1000 endpoints what counts is under ` + "`(other)`" + `.

| name | kind | labels | role | |
|---|---|---|---|---|
`

func TestGeneratedTable(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(head)
	for _, n := range metrics.Names() {
		role := n.Role
		if role == "" {
			role = "all"
		}
		fmt.Fprintf(&doc, "| `%s` | %s | %s | %s | %s |\n", n.Name, n.Kind, strings.Join(n.Labels, ", "), role, n.Help)
	}
	const path = "../../docs/metrics.md"
	testenv.Golden(t, *update, path, doc.String())
}

func scrape(r *metrics.Registry) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestEventsAreCounted(t *testing.T) {
	r := metrics.New(new(nats.Conn))
	at := time.Unix(1000, 0)
	base := events.Event{Endpoint: "a", Queued: at, Started: at.Add(2 * time.Second), Finished: at.Add(5 * time.Second)}
	for _, change := range []func(*events.Event){
		func(e *events.Event) { e.Kind, e.Status, e.Started = events.Queued, job.InQueue, time.Time{} },
		func(e *events.Event) { e.Kind, e.Status, e.Run = events.Started, job.InProgress, 1 },
		func(e *events.Event) { e.Kind, e.Status, e.Run = events.Started, job.InProgress, 2 },
		func(e *events.Event) { e.Kind, e.Status, e.Run = events.Completed, job.Completed, 2 },
		func(e *events.Event) { e.Kind, e.Status, e.Run = events.Cancelled, job.Cancelled, 1 },
	} {
		e := base
		change(&e)
		r.Counted(e)
	}
	got := scrape(r)
	for _, want := range []string{
		`flightline_jobs_finished_total{endpoint="a",status="COMPLETED"} 1`,
		`flightline_jobs_finished_total{endpoint="a",status="CANCELLED"} 1`,
		`flightline_queue_delay_seconds_sum{endpoint="a"} 2`,
		`flightline_queue_delay_seconds_count{endpoint="a"} 1`,
		`flightline_execution_seconds_sum{endpoint="a"} 3`,
		`flightline_execution_seconds_count{endpoint="a"} 1`,
		`flightline_redeliveries_total{endpoint="a"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got no %s in\n%s", want, got)
		}
	}
	r.Retain(map[string]bool{})
	if got := scrape(r); strings.Contains(got, `endpoint="a"`) {
		t.Errorf("got series of an endpoint that is gone:\n%s", got)
	}
}

func TestEndpointsAreBounded(t *testing.T) {
	r := metrics.New(new(nats.Conn))
	for i := range metrics.MaxEndpoints + 5 {
		r.Stale(fmt.Sprintf("e%d", i))
	}
	got := scrape(r)
	if n := strings.Count(got, "\nflightline_stale_results_total{"); n != metrics.MaxEndpoints+1 {
		t.Errorf("got %d series, want %d", n, metrics.MaxEndpoints+1)
	}
	if want := `flightline_stale_results_total{endpoint="(other)"} 5`; !strings.Contains(got, want) {
		t.Errorf("got no %s", want)
	}
}

// Where no Fleet is, as at a recorder or a gateway of its own.
func TestEndpointsThatAreGoneMakeRoomForOthers(t *testing.T) {
	r := metrics.New(new(nats.Conn))
	there, err := []endpoint.Endpoint{{ID: "e0"}}, error(nil)
	r.AddEndpoints(func(context.Context) ([]endpoint.Endpoint, error) { return there, err })
	for i := range metrics.MaxEndpoints {
		r.Stale(fmt.Sprintf("e%d", i))
	}
	scrape(r)
	r.Stale("new")
	err = errors.New("not read")
	got := scrape(r)
	want := `flightline_stale_results_total{endpoint="e0"} 1
flightline_stale_results_total{endpoint="new"} 1
`
	if n := strings.Count(got, "\nflightline_stale_results_total{"); n != 2 || !strings.Contains(got, want) {
		t.Errorf("got %d series, want\n%s", n, want)
	}
}

func BenchmarkSubmitted(b *testing.B) {
	o := metrics.New(new(nats.Conn)).Observer()
	b.ReportAllocs()
	for b.Loop() {
		o.Submitted("echo", job.Sync)
	}
}

func BenchmarkAnswered(b *testing.B) {
	r := metrics.New(new(nats.Conn))
	b.ReportAllocs()
	for b.Loop() {
		r.Answered("POST", "/v2/:endpoint/run", 200, time.Millisecond)
	}
}
