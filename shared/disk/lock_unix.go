//go:build unix

package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockTimeout bounds for how long Lock waits, lockInterval is the pause between two tries.
const lockTimeout, lockInterval = time.Second, 10 * time.Millisecond

// Lock makes a file and locks it until it is closed, also by a crash. A process that was
// killed while it started a command leaves its locks to the command, until that is the other
// program: Lock waits for a second, and returns ErrLocked then.
func Lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for end := time.Now().Add(lockTimeout); ; <-time.After(lockInterval) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("%w: %s", ErrLocked, path), file.Close())
		}
	}
}
