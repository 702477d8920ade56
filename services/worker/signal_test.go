package worker

import (
	"context"
	"log/slog"
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
			service, err := New(Config{Worker: sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID}, Dir: dir, Command: []string{"sh", "-c", script}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- service.Run(ctx) }()
			id := s.submit(t)
			testenv.Eventually(t, "the command runs", func() bool { return pid(dir, "own") > 0 })
			if err := syscall.Kill(pid(dir, "own"), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("got %v, want a clean stop", err)
			}
			s.shell(t, `echo '"again"'`)
			if j := s.ended(t, id); j.Status != job.Completed || string(j.Output) != `"again"` || j.Run != 2 || j.Lost != 0 {
				t.Errorf("got %+v, want it completed by run 2, no worker lost", j)
			}
		})
	}
}

func TestACommandThatIsEndedAloneFailsItsJob(t *testing.T) {
	s := newEnv(t)
	s.shell(t, `kill -TERM $$; sleep 600`)
	if j := s.ended(t, s.submit(t)); j.Status != job.Failed || j.Error != "signal: terminated" {
		t.Errorf("got %s %q, want it failed", j.Status, j.Error)
	}
}

// A job may be the cause of the signal: the memory of its unit is used up.
func TestAJobIsNotGivenBackForEver(t *testing.T) {
	dir := t.TempDir()
	stopping := make(chan struct{})
	close(stopping)
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	c := &command{path: path, args: []string{"sh", "-c", "kill -TERM $$"}, dir: dir, log: slog.New(slog.DiscardHandler), stopping: stopping}
	for run, want := range map[int]string{1: sdk.ErrDraining.Error(), maxInterruptedRun: sdk.ErrDraining.Error(), maxInterruptedRun + 1: "signal: terminated"} {
		if _, err := c.run(t.Context(), &sdk.Job{Run: run, Input: []byte("{}")}); err == nil || err.Error() != want {
			t.Errorf("run %d: got %v, want %s", run, err, want)
		}
	}
}
