package tracing

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

// A reader of a line about a job finds the job, its endpoint, its worker and
// its trace, in whichever process it was written.
func TestLinesAboutAJobNameItAndItsTrace(t *testing.T) {
	t.Parallel()
	to, s := newCollected(t), program.New(t)
	s.Environ = append(s.Environ, to.variables()...)
	s.Environ = append(s.Environ, "FLIGHTLINE_API_KEY="+tracesKey)
	logs := []string{"--log-format", "json", "--log-level", "debug"}
	dev := s.Start(append([]string{"dev", "--no-demo"}, logs...)...)
	url := dev.Line(program.Ready)
	s.OK("endpoint", "create", "mine")
	worker := s.Start(append(append([]string{"worker", "mine"}, logs...), "--", "sh", "-c", "echo looked >&2; echo 1")...)
	worker.Line(program.WorkerReady)
	// Nobody listens there: the webhook is given up, which is logged.
	id := jobOf(t, send(s, url, "mine/run", `{"input":{},"webhook":"http://127.0.0.1:1/"}`, nil))
	run := to.of("process mine", id)
	for name, c := range map[string]struct {
		in    *program.Process
		about string
		want  map[string]string
	}{
		"the worker's":  {worker, "job ended", map[string]string{"job": id, "endpoint": "mine", "worker": run.attrs["flightline.worker.id"], "trace_id": run.trace, "span_id": run.id}},
		"the command's": {worker, "command says", map[string]string{"job": id, "endpoint": "mine", "worker": run.attrs["flightline.worker.id"], "trace_id": run.trace, "span_id": run.id}},
		"the webhook's": {dev, "webhook", map[string]string{"job": id, "endpoint": "mine", "trace_id": run.trace}},
	} {
		got := jsonLine(c.in, c.about, id)
		for key, want := range c.want {
			if got[key] != want || want == "" {
				t.Errorf("%s: got %s=%v, want %q, in %v", name, key, got[key], want, got)
			}
		}
	}
}

// jsonLine waits for a line about the job whose message begins so.
func jsonLine(d *program.Process, about, job string) map[string]any {
	d.T.Helper()
	for end := time.Now().Add(2 * program.Soon); ; <-time.After(100 * time.Millisecond) {
		for line := range strings.Lines(d.Said()) {
			var got map[string]any
			if json.Unmarshal([]byte(line), &got) != nil {
				continue
			}
			if msg, _ := got["msg"].(string); strings.HasPrefix(msg, about) && got["job"] == job {
				return got
			}
		}
		if time.Now().After(end) {
			d.T.Fatalf("no line %q about %s in\n%s", about, job, d.Said())
		}
	}
}
