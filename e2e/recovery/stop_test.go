package recovery

import (
	"strings"
	"syscall"
	"testing"

	"flightline/shared/testenv/program"
)

// A worker that is asked to stop says which job it waits for, and ends at once
// when it is asked again.
func TestASecondSignalEndsAWorkerThatWaitsForAJob(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	t.Cleanup(func() { p.Open(p.Release("only")) }) // ends the handler, which outlives its worker
	script := `while [ ! -e ` + p.Release("only") + ` ]; do sleep 0.05; done`
	w := p.Start("worker", "work", "--grace", "10m", "--", "sh", "-c", script)
	w.Line(program.WorkerReady)
	id := program.Submit(p.Env, "work")
	p.Eventually("the job runs", func() bool { return strings.Contains(p.OK("status", "work", id), "IN_PROGRESS") })
	w.Terminate()
	p.Eventually("the worker says what it waits for", func() bool {
		said := w.Said()
		return strings.Contains(said, "still stopping") && strings.Contains(said, "worker (1 running job: "+id+")")
	})
	w.Terminate()
	for range w.Lines { // until its end
	}
	_ = w.Cmd.Wait() // by the signal, which is looked at below
	status, ok := w.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("got %v, want an end by the second signal", w.Cmd.ProcessState)
	}
}
