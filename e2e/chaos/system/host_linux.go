package system

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when the test ends, however
// that ends.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

const canMount = true

// mountSmall mounts a file system in memory with room for so many bytes.
func mountSmall(dir string, bytes int64) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return fmt.Errorf("mount a small file system: %w", err)
	}
	return nil
}

// resizeSmall changes how many bytes the file system of mountSmall has room for.
func resizeSmall(dir string, bytes int64) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("resize a small file system: %w", err)
	}
	return nil
}

// fillSmall leaves the file system of mountSmall the room that its files use.
func fillSmall(dir string) error {
	for {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			return fmt.Errorf("fill a small file system: %w", err)
		}
		err := resizeSmall(dir, int64(fs.Blocks-fs.Bfree)*fs.Bsize) //nolint:gosec // far from overflow
		if !errors.Is(err, syscall.EINVAL) {                        // its files have grown meanwhile
			return err
		}
	}
}

func unmount(dir string) error {
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}
