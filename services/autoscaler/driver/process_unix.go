//go:build unix

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"flightline/shared/disk"
)

// lockFolder holds the folder until the file is closed, or this program ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := disk.Lock(filepath.Join(folder, lockFile))
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrBusy, folder)
	}
	return file, err
}

// killGroup kills what is left of the session's first group, which may be
// nothing.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// terminateGroup asks the group to end.
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
