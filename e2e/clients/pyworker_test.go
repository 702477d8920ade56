package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pyWorker is a process with the published package as a worker. It stands for
// a container: when its main process ends, the rest of it is killed, unless it is
// bare.
type pyWorker struct {
	bare  atomic.Bool
	id    string
	cmd   *exec.Cmd
	log   string // file of what it printed
	ended chan struct{}
	err   error // of its end
}

var workerIDs atomic.Int64

// start starts a worker with this handler, and waits until it is there.
func (b *bench) start(handler string, env ...string) *pyWorker {
	b.Helper()
	id := fmt.Sprintf("w%d", workerIDs.Add(1))
	env = append(append(b.environment(id), "HANDLER="+handler, "RUNS="+b.runs, "GO="+b.gofile), env...)
	return b.startAs(id, command(b.T, b.dir, env, needsPython(b.T, python), b.script))
}

// startAs starts a worker that was let in.
func (b *bench) startAs(id string, cmd *exec.Cmd) *pyWorker {
	b.Helper()
	w := &pyWorker{id: id, cmd: cmd, log: filepath.Join(b.dir, id+".log"), ended: make(chan struct{})}
	log, err := os.Create(w.log)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	w.cmd.Stdout, w.cmd.Stderr = log, log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() { // ends with the process
		defer close(w.ended)
		w.err = w.cmd.Wait()
		if !w.bare.Load() {
			_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // its pings, which outlive it
		}
	}()
	b.Cleanup(func() {
		w.kill()
		if b.Failed() {
			text, _ := os.ReadFile(w.log)
			b.Logf("%s printed:\n%s", id, tail(string(text), 6000))
		}
	})
	b.eventually("worker "+id+" is there", func() bool {
		select {
		case <-w.ended:
			b.Fatalf("worker %s ended: %v", id, w.err)
		default:
		}
		h, err := b.s.api.Health(b.Context(), b.endpoint)
		return err == nil && h.Workers.Idle+h.Workers.Running > 0
	})
	return w
}

func (w *pyWorker) kill() {
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
	<-w.ended
}

func (w *pyWorker) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// stops waits for an orderly end.
func (w *pyWorker) stops(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-w.ended:
		if w.err != nil {
			t.Errorf("worker %s: got %v, want an orderly end", w.id, w.err)
		}
	case <-time.After(within):
		t.Fatalf("worker %s: no end within %v", w.id, within)
	}
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }
