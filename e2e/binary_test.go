package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// soon bounds every wait for a fact that should hold within moments, with
// room for a slow machine.
const soon = 30 * time.Second

// site is a folder in which the built binary is used, as a stranger would.
type site struct {
	t      *testing.T
	dir    string
	binary string
	env    []string // on top of what a shell needs; the last of a name counts
}

// newSite builds the binary and gives it an empty folder and free ports.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), binary: filepath.Join(t.TempDir(), "flightline")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.binary, "./services/flightline")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	s.env = []string{"FLIGHTLINE_LISTEN=127.0.0.1:0", "FLIGHTLINE_NATS_LISTEN=127.0.0.1:0"}
	return s
}

// command is the binary, or another program, in the site's folder. The
// settings of whoever runs the tests do not reach it.
func (s *site) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Dir = s.dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FLIGHTLINE_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// endWithin bounds a command line that is to end by itself.
const endWithin = 2 * time.Minute

// run runs a command line of the binary to its end.
func (s *site) run(args ...string) (code int, out, errs string) {
	s.t.Helper()
	cmd := s.command(s.binary, args...)
	late := time.AfterFunc(endWithin, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("flightline %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// ok runs a command line that must succeed, and returns what it answered.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	code, out, errs := s.run(args...)
	if code != 0 {
		s.t.Fatalf("flightline %v: got code %d, want 0\n%s%s", args, code, out, errs)
	}
	return out
}

// daemon is a process that stays up until it is stopped.
type daemon struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of its standard output; closed at its end
	mu    sync.Mutex
	errs  bytes.Buffer
}

// start starts the binary; the end of the test kills it.
func (s *site) start(args ...string) *daemon {
	s.t.Helper()
	return s.daemon(s.command(s.binary, args...))
}

func (s *site) daemon(cmd *exec.Cmd) *daemon {
	s.t.Helper()
	d := &daemon{t: s.t, cmd: cmd, lines: make(chan string, 100)}
	cmd.Stderr = d
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(d.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			d.lines <- scan.Text()
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	s.t.Cleanup(func() { d.kill() })
	return d
}

// Write keeps what the process says on standard error.
func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs.Write(p)
}

func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs.String()
}

// line waits for a line of output that begins so, and returns its rest.
func (d *daemon) line(prefix string) string {
	d.t.Helper()
	late := time.NewTimer(soon)
	defer late.Stop()
	for {
		select {
		case line, open := <-d.lines:
			if !open {
				d.t.Fatalf("%v ended without the line %q:\n%s", d.cmd.Args, prefix, d.said())
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-late.C:
			d.t.Fatalf("%v: no line %q within %v:\n%s", d.cmd.Args, prefix, soon, d.said())
		}
	}
}

// stop sends SIGTERM, and fails the test unless the process ends with code 0
// in time.
func (d *daemon) stop(within time.Duration) {
	d.t.Helper()
	d.terminate()
	d.ends(within)
}

// terminate sends SIGTERM.
func (d *daemon) terminate() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
}

// ends waits for the end of a process that was told to.
func (d *daemon) ends(within time.Duration) {
	d.t.Helper()
	began := time.Now()
	for range d.lines { // until its end
	}
	err := d.cmd.Wait()
	if took := time.Since(began); err != nil || took > within {
		d.t.Fatalf("%v: got an end after %v: %v, want code 0 within %v\n%s", d.cmd.Args, took, err, within, d.said())
	}
}

// kill ends the process as a power cut would. Killing an ended one does
// nothing.
func (d *daemon) kill() {
	if d.cmd.ProcessState != nil {
		return
	}
	_ = d.cmd.Process.Kill()
	for range d.lines { // until its end
	}
	_ = d.cmd.Wait()
}
