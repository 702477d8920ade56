package tracing

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/metrics"
	"flightline/shared/testenv/program"
)

const metricsAt = "flightline metrics: "

// One job is seen from its submission to its end, and what the rules and the
// dashboard name is there.
func TestMetricsOfOneJob(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev", "--metrics-listen", "127.0.0.1:0")
	at := d.Line(metricsAt)
	d.Line("first job ")
	s.OK("runsync", "echo", `{"n":1}`)
	want := []string{
		`flightline_jobs_submitted_total{endpoint="echo",mode="sync"} 1`,
		`flightline_jobs_finished_total{endpoint="echo",status="COMPLETED"} 2`,
		`flightline_queue_delay_seconds_count{endpoint="echo"} 2`,
		`flightline_execution_seconds_count{endpoint="echo"} 2`,
		`flightline_queue_depth{class="normal",endpoint="echo"} 0`,
		`flightline_jobs_in_progress{endpoint="echo"} 0`,
		`flightline_queue_oldest_waiting_seconds{endpoint="echo"} 0`,
		`flightline_workers{endpoint="echo",state="idle"} 1`,
		`flightline_http_requests_total{code="200",method="POST",route="/v2/:endpoint/runsync"} 1`,
		`flightline_nats_connected 1`,
		`flightline_workers_wanted{endpoint="echo"}`, // any number
	}
	var got string
	for end := time.Now().Add(30 * time.Second); ; {
		got = scrape(t, at)
		missing := missingOf(got, want)
		if len(missing) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not scraped:\n%s\ngot:\n%s", strings.Join(missing, "\n"), ours(got))
		}
		<-time.After(200 * time.Millisecond)
	}
	if id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7`).FindString(got); id != "" {
		t.Errorf("got %s… in a scrape, want no id of a job", id)
	}
	namedIsExposed(t, got)
	s.OK("endpoint", "delete", "echo", "--force")
	for end := time.Now().Add(30 * time.Second); strings.Contains(scrape(t, at), `endpoint="echo"`); <-time.After(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got series of a deleted endpoint:\n%s", ours(scrape(t, at)))
		}
	}
	d.Stop(program.StopWithin)
}

// unborn have no series before what they count has happened.
var unborn = []string{"flightline_redeliveries_total", "flightline_stale_results_total", "flightline_webhook_deliveries_total"}

func namedIsExposed(t *testing.T, scraped string) {
	t.Helper()
	for _, n := range metrics.Names() {
		if want := "# TYPE " + n.Name + " " + string(n.Kind); !strings.Contains(scraped, want+"\n") && !slices.Contains(unborn, n.Name) {
			t.Errorf("got no %q, which docs/metrics.md names", want)
		}
	}
	names := regexp.MustCompile(`flightline_[a-z_]+`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../docs/operating/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if file == "dashboard.json" && !json.Valid(text) {
			t.Errorf("%s is no JSON", file)
		}
		for _, name := range names.FindAllString(string(text), -1) {
			if !strings.Contains(scraped, name) && !strings.Contains(strings.Join(unborn, " "), name) {
				t.Errorf("%s names %s, which is not exposed", file, name)
			}
		}
	}
}

func scrape(t *testing.T, at string) string {
	t.Helper()
	r, err := http.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("scrape: got %d, %v\n%s", r.StatusCode, err, text)
	}
	return string(text)
}

func missingOf(got string, want []string) (missing []string) {
	for _, line := range want {
		if !strings.Contains(got, line+"\n") && !strings.Contains(got, "\n"+line+" ") {
			missing = append(missing, line)
		}
	}
	return missing
}

func ours(scraped string) string {
	var lines []string
	for line := range strings.Lines(scraped) {
		if strings.HasPrefix(line, "flightline_") && !strings.Contains(line, "_bucket") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
