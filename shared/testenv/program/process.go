package program

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a process that stays up until it is stopped.
type Process struct {
	T     *testing.T
	Cmd   *exec.Cmd
	Lines chan string // of its standard output; closed at its end
	mu    sync.Mutex
	errs  bytes.Buffer
}

// Start starts the binary; the end of the test kills it.
func (e *Env) Start(args ...string) *Process {
	e.T.Helper()
	return e.start(e.Command(e.Binary, args...))
}

// StartCommand starts a command line that ends in the binary, likewise.
func (e *Env) StartCommand(cmd *exec.Cmd) *Process {
	e.T.Helper()
	return e.start(cmd)
}

func (e *Env) start(cmd *exec.Cmd) *Process {
	e.T.Helper()
	d := &Process{T: e.T, Cmd: cmd, Lines: make(chan string, 100)}
	cmd.Stderr = d
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		e.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.T.Fatal(err)
	}
	go func() { // ends with the process
		defer close(d.Lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			d.Lines <- scan.Text()
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	e.T.Cleanup(func() { d.Kill() })
	return d
}

// Write keeps what the process says on standard error.
func (d *Process) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs.Write(p)
}

// Said is what the process has said on standard error.
func (d *Process) Said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs.String()
}

// Line waits for a line of output that begins so, and returns its rest.
func (d *Process) Line(prefix string) string {
	d.T.Helper()
	late := time.NewTimer(Soon)
	defer late.Stop()
	for {
		select {
		case line, open := <-d.Lines:
			if !open {
				d.T.Fatalf("%v ended without the line %q:\n%s", d.Cmd.Args, prefix, d.Said())
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-late.C:
			d.T.Fatalf("%v: no line %q within %v:\n%s", d.Cmd.Args, prefix, Soon, d.Said())
		}
	}
}

// Stop sends SIGTERM, and fails the test unless the process ends with code 0
// in time.
func (d *Process) Stop(within time.Duration) {
	d.T.Helper()
	d.Terminate()
	d.Ends(within)
}

// Terminate sends SIGTERM.
func (d *Process) Terminate() {
	d.T.Helper()
	if err := d.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.T.Fatal(err)
	}
}

// Ends waits for the end of a process that was asked to.
func (d *Process) Ends(within time.Duration) {
	d.T.Helper()
	began := time.Now()
	for range d.Lines { // until its end
	}
	err := d.Cmd.Wait()
	if took := time.Since(began); err != nil || took > within {
		d.T.Fatalf("%v: got an end after %v: %v, want code 0 within %v\n%s", d.Cmd.Args, took, err, within, d.Said())
	}
}

// Kill ends the process as a power cut would. Killing an ended one does
// nothing.
func (d *Process) Kill() {
	if d.Cmd.ProcessState != nil {
		return
	}
	_ = d.Cmd.Process.Kill()
	for range d.Lines { // until its end
	}
	_ = d.Cmd.Wait()
}

// Tell logs, if the test failed, how the process's log ends.
func (d *Process) Tell() {
	if text := d.Said(); d.T.Failed() {
		d.T.Logf("%v says at last:\n%s", d.Cmd.Args[1:], text[max(0, len(text)-4000):])
	}
}
