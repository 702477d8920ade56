package system

import (
	"fmt"
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when the test ends, however
// that ends.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

const canMount = true

// mountSmall mounts a file system in memory with room for so many bytes.
func mountSmall(dir string, bytes int) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return fmt.Errorf("mount a small file system: %w", err)
	}
	return nil
}

func unmount(dir string) error {
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}
