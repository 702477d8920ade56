package worker

import (
	"os"
	"testing"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"

	"flightline/shared/testenv"
)

// The first process of a container is the parent of all that lost theirs: each job would
// leave it a process that has ended.
func TestWhatACommandLeavesIsWaitedFor(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	s := newEnv(t)
	s.shell(t, `sleep 600 & echo 1`)
	s.ended(t, s.submit(t))
	own := process.Process{Pid: int32(os.Getpid())}
	testenv.Eventually(t, "no child is left, ended or not", func() bool {
		children, err := own.ChildrenWithContext(t.Context())
		return err == nil && len(children) == 0
	})
}
