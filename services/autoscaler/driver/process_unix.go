//go:build unix

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockFolder holds the folder until the file is closed, or this program ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s", ErrBusy, folder)
		}
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// killGroup kills what is left of the session's first group, which may be
// nothing.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// terminateGroup asks the group to end, unless it did.
func terminateGroup(pid int, done <-chan struct{}) {
	select {
	case <-done:
	default:
		_ = syscall.Kill(-pid, syscall.SIGTERM)
	}
}
