package system

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when the test ends, however
// that ends.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
