package recovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// A restore that reads a file without an end is asked to stop. It took SIGKILL.
func TestARestoreEndsWhenItIsAsked(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	dir := filepath.Join(s.Dir, "backup")
	s.OK("backup", dir)
	snapshot := filepath.Join(dir, "EVENTS.snapshot")
	if err := os.Truncate(snapshot, 1<<40); err != nil { // hours of zeros
		t.Fatal(err)
	}
	cfg := testenv.NewServer(t).Config()
	s.Environ = append(s.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := s.Start("restore", dir)
		s.Eventually("it reads the file", func() bool { return opens(d.Cmd.Process.Pid, snapshot) })
		if err := d.Cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range d.Lines { // until its end
		}
		if err := d.Cmd.Wait(); err == nil {
			t.Error("got code 0, want an error")
		}
		took := time.Since(began)
		t.Logf("%v: %v", signal, took)
		if took > 10*time.Second || !strings.Contains(d.Said(), "interrupted") { // 1 s on a quiet machine
			t.Errorf("%v: got %q after %v, want its end at once", signal, d.Said(), took)
		}
	}
	// What is there instead of a file is refused: nothing of it is read.
	if err := os.Remove(snapshot); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", snapshot); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.Run("restore", dir); code != 1 || !strings.Contains(errs, "EVENTS.snapshot is a link, want a plain file") {
		t.Errorf("got code %d, %s, want the link refused", code, errs)
	}
}

// opens reports whether the process has the file open.
func opens(pid int, path string) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			return true
		}
	}
	return false
}
