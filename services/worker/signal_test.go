package worker

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"syscall"
	"testing"

	"flightline/shared/job"
	"flightline/shared/testenv"
	sdk "flightline/shared/worker"
)

// systemd, and a terminal, end a worker and its commands by one signal each.
func TestACommandThatIsEndedWithItsWorkerGivesItsJobBack(t *testing.T) {
	for name, script := range map[string]string{
		"by the signal":         `echo $$ > own; exec sleep 600`,
		"with the shell's code": `trap 'exit 143' TERM; echo $$ > own; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			dir := t.TempDir()
			stop := s.start(t, Config{Dir: dir, Command: []string{"sh", "-c", script}})
			id := s.submit(t)
			testenv.Eventually(t, "the command runs", func() bool { return pid(dir, "own") > 0 })
			if err := syscall.Kill(pid(dir, "own"), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := stop(); err != nil {
				t.Errorf("got %v, want a clean stop", err)
			}
			s.shell(t, `echo '"again"'`)
			if j := s.ended(t, id); j.Status != job.Completed || string(j.Output) != `"again"` || j.Run != 2 || j.Lost != 0 {
				t.Errorf("got %+v, want it completed by run 2, no worker lost", j)
			}
		})
	}
}

// A server is ended by the same signal, before its answer or in it.
func TestAServerThatIsEndedWithItsWorkerGivesItsJobBack(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct{ kind, text string }{
		"before": {}, "in it": {"application/json", `{"cut`}, "in a stream": {"application/x-ndjson", "1\n2\n"}, "in events": {"text/event-stream", "data: 1\n\n"},
	} {
		for of, config := range map[string]func(url string) Config{
			"a server":         func(url string) Config { return Config{URL: url} },
			"a model's server": func(url string) Config { return Config{Upstream: Upstream{URL: url}} },
		} {
			t.Run(of+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newEnv(t)
				asked, end := make(chan struct{}), make(chan struct{})
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == pathHealth {
						return
					}
					if answer.text != "" {
						w.Header().Set("Content-Type", answer.kind)
						_, _ = io.WriteString(w, answer.text)
						_ = http.NewResponseController(w).Flush()
					}
					close(asked)
					<-end
					panic(http.ErrAbortHandler)
				}))
				t.Cleanup(server.Close)
				stop := s.start(t, config(server.URL))
				id := s.route(t, "/v1/x", `{"n":1}`)
				<-asked
				close(end)
				if err := stop(); err != nil {
					t.Errorf("got %v, want a clean stop", err)
				}
				if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Lost != 0 {
					t.Errorf("got %+v, %v, want it given back", j, err)
				}
			})
		}
	}
}

func TestACommandThatIsEndedAloneFailsItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.shell(t, `kill -TERM $$; sleep 600`)
	if j := s.ended(t, s.submit(t)); j.Status != job.Failed || j.Error != "signal: terminated" {
		t.Errorf("got %s %q, want it failed", j.Status, j.Error)
	}
}

// A job may be the cause of the signal: the memory of its unit is used up.
func TestAJobIsNotGivenBackForEver(t *testing.T) {
	dir := t.TempDir()
	stopped := make(chan struct{})
	close(stopped)
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	c := &command{path: path, args: []string{"sh", "-c", "kill -TERM $$"}, dir: dir, log: slog.New(slog.DiscardHandler)}
	working, end := context.WithCancelCause(t.Context())
	end(nil)
	handler := (&Service{stopping: stopped, handler: c.run}).givesBack(working, end)
	for run, want := range map[int]string{1: sdk.ErrDraining.Error(), maxInterruptedRun: sdk.ErrDraining.Error(), maxInterruptedRun + 1: "signal: terminated"} {
		if _, err := handler(t.Context(), &sdk.Job{Run: run, Input: []byte("{}")}); err == nil || err.Error() != want {
			t.Errorf("run %d: got %v, want %s", run, err, want)
		}
	}
}
