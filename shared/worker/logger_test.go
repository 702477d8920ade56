package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/logs/logstest"
	"flightline/shared/worker"
)

// What a handler logs is kept with its job, and goes to the worker's log; a driver's
// worker leaves the keeping to the driver.
func TestALoggersRecordsAreKeptWithTheJob(t *testing.T) {
	t.Parallel()
	for name, driven := range map[string]bool{"by hand": false, "by a driver": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var own bytes.Buffer
			cfg := worker.Config{
				ID: "w1", LogsKept: driven, Environment: map[string]string{"API_TOKEN": "secret-of-the-test"},
				Log: slog.New(slog.NewTextHandler(&own, nil)),
			}
			r := s.run(t, cfg, func(ctx context.Context, j *worker.Job) (any, error) {
				log := j.Logger()
				log.InfoContext(ctx, "loading", "model", "tiny", "key", "secret-of-the-test")
				log.WithGroup("gpu").With("n", 1).WarnContext(ctx, "hot", "celsius", 90)
				log.InfoContext(ctx, "HTTP/1.1 200 OK\r\nDate: x\r\n", "n", 2)
				j.Printed("stderr", []byte("10%\rraw \xff"))
				return "ok", nil
			})
			id := s.submit(t)
			s.wantEnd(t, id, job.Completed, `"ok"`, "")
			r.stop()
			if err := r.wait(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range logstest.All(t, s.q.Bus(), logs.Watching{Endpoint: s.e, Job: id, Resume: true}) {
				got = append(got, l.Worker+" "+l.Stream+" "+l.Level+" "+l.Text)
			}
			want := "w1 log info loading model=tiny key=***|w1 log warn hot gpu.n=1 gpu.celsius=90|w1 log info HTTP/1.1 200 OK\r\nDate: x\r\n n=2|w1 stderr  raw \uFFFD"
			if driven {
				want = ""
			}
			if strings.Join(got, "|") != want {
				t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
			}
			if !strings.Contains(own.String(), "job="+string(id)) || !strings.Contains(own.String(), "gpu.celsius=90") {
				t.Errorf("got %s in the worker's log", own.String())
			}
		})
	}
}

func TestAJobMadeByHandLogsNowhere(t *testing.T) {
	t.Parallel()
	j := &worker.Job{ID: "1", Input: json.RawMessage(`{}`)}
	j.Logger().ErrorContext(t.Context(), "nowhere")
	j.Printed("stdout", []byte("nowhere"))
}
