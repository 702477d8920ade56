package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/metrics"
	"flightline/shared/testenv"
)

func until(t *testing.T, r *metrics.Registry, lines ...string) {
	t.Helper()
	testenv.EventuallyNone(t, func() string {
		got := scrape(r)
		for _, line := range lines {
			if !strings.Contains(got, line+"\n") {
				return fmt.Sprintf("got no %s in\n%s", line, got)
			}
		}
		return ""
	})
}

func TestTheConnectionIsSeen(t *testing.T) {
	server := testenv.NewServer(t)
	r := metrics.New(server.NC)
	until(t, r, "flightline_nats_connected 1", "flightline_nats_reconnects_total 0", "flightline_jetstream_errors_total 0")
	server.Stop()
	until(t, r, "flightline_nats_connected 0")
	server.Start()
	until(t, r, "flightline_nats_connected 1", "flightline_nats_reconnects_total 1")
	r.Observer().Unanswered()
	until(t, r, "flightline_jetstream_errors_total 1")
}

func TestRequestsAreCountedByRoute(t *testing.T) {
	r := metrics.New(new(nats.Conn))
	r.Answered("POST", "/v2/:endpoint/run", 200, 2*time.Millisecond)
	r.Answered("GET", "/", 404, time.Millisecond)
	r.Tried("delivered")
	got := scrape(r)
	for _, want := range []string{
		`flightline_http_requests_total{code="200",method="POST",route="/v2/:endpoint/run"} 1`,
		`flightline_http_request_duration_seconds_bucket{code="200",method="POST",route="/v2/:endpoint/run",le="0.0025"} 1`,
		`flightline_http_request_duration_seconds_count{code="404",method="GET",route="none"} 1`,
		`flightline_webhook_deliveries_total{result="delivered"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got no %s in\n%s", want, got)
		}
	}
}

// What the recorder pays for a job: three events.
func BenchmarkCounted(b *testing.B) {
	r := metrics.New(new(nats.Conn))
	at := time.Unix(1000, 0)
	started := events.Event{Endpoint: "a", Kind: events.Started, Status: job.InProgress, Run: 1, Queued: at, Started: at.Add(time.Second)}
	ended := started
	ended.Kind, ended.Status, ended.Finished = events.Completed, job.Completed, at.Add(2*time.Second)
	queued := events.Event{Endpoint: "a", Kind: events.Queued, Status: job.InQueue, Queued: at}
	b.ReportAllocs()
	for b.Loop() {
		r.Counted(queued)
		r.Counted(started)
		r.Counted(ended)
	}
}
