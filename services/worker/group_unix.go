//go:build unix

package worker

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// lead makes cmd the leader of a process group, so that what it starts can be
// ended with it, and a Ctrl-C meant for us does not reach it. The end of its
// context is a SIGTERM to the group.
func lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) != nil {
			return os.ErrProcessDone
		}
		return nil
	}
}

// killGroup ends what is left of cmd's group, which may be nothing. Of the first process of a
// container these are children, and nothing else waits for their ends: they would fill
// its table of processes.
func killGroup(cmd *exec.Cmd) {
	group := -cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGKILL)
	go func() { // ends with the last child of the group
		for {
			if _, err := syscall.Wait4(group, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
}
