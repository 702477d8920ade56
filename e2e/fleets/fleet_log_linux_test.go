package fleets

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

// TestALogThatIsNotReadHoldsUpNoFleet starts a dev whose log is a pipe that is full, as that
// of a container whose log driver hangs. Its fleet grows nevertheless, and it stops.
func TestALogThatIsNotReadHoldsUpNoFleet(t *testing.T) {
	t.Parallel()
	log := namedPipe(t)
	pipe, err := syscall.Open(log, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(pipe) })
	for err == nil {
		_, err = syscall.Write(pipe, make([]byte, 4096))
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("fill the pipe: %v", err)
	}

	s := program.New(t)
	d := devLoggingTo(s, log)
	f := fleetSiteOf(t, s, d)
	f.endpoint("ep", nil)
	f.completed("ep", f.submit("ep", 2, 10, nil))
	d.Stop(program.StopWithin)
}

// TestADevWithoutItsTerminalStopsInOrder takes away what reads the log of a dev with a busy
// worker, and sends what comes with that. The job is given back at once.
func TestADevWithoutItsTerminalStopsInOrder(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][]syscall.Signal{
		"a terminal that is closed":              {syscall.SIGHUP, syscall.SIGHUP},
		"a pipe to a program that Ctrl-C ends":   {syscall.SIGINT},
		"a pipe to a program that ended earlier": {syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := namedPipe(t)
			reader, err := os.OpenFile(log, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := program.New(t)
			s.Environ = append(s.Environ, "FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT=1s")
			d := devLoggingTo(s, log)
			f := fleetSiteOf(t, s, d)
			f.endpoint("ep", nil)
			job := f.submit("ep", 1, 300_000, nil)[0]
			f.held("ep", job)
			if err := reader.Close(); err != nil {
				t.Fatal(err)
			}
			for _, sig := range signals {
				if err := d.Cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			d.Ends(time.Second + 2*program.StopWithin)

			f, d = fleetDevOf(t, s, "FLIGHTLINE_DRIVERS=none")
			f.status("ep", job, "IN_QUEUE")
			f.counts("ep", 1, 0)
			d.Stop(program.StopWithin)
		})
	}
}

func namedPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// devLoggingTo starts a dev whose log, at the level info, goes to a named pipe that is open.
func devLoggingTo(s *program.Env, pipe string) *program.Process {
	s.Environ = append(s.Environ, "FLIGHTLINE_LOG_LEVEL=info")
	return s.StartCommand(s.Command("sh", "-c", `exec "$0" dev --no-demo 2>"$1"`, s.Binary, pipe))
}
