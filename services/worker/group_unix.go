//go:build unix

package worker

import (
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

// killGroup ends what is left of cmd's group, which may be nothing.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
