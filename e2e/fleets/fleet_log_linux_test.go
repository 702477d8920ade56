package fleets

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"flightline/shared/testenv/program"
)

// TestALogThatIsNotReadHoldsUpNoFleet starts a dev whose log is a pipe that is full, as that
// of a container whose log driver hangs. Its fleet grows nevertheless, and it stops.
func TestALogThatIsNotReadHoldsUpNoFleet(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(log, 0o600); err != nil {
		t.Fatal(err)
	}
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
	s.Environ = append(s.Environ, "FLIGHTLINE_LOG_LEVEL=info")
	d := s.StartCommand(s.Command("sh", "-c", `exec "$0" dev --no-demo 2>"$1"`, s.Binary, log))
	f := fleetSiteOf(t, s, d)
	f.endpoint("ep", nil)
	f.completed("ep", f.submit("ep", 2, 10, nil))
	d.Stop(program.StopWithin)
}
