//go:build unix

package process

import (
	"math"
	"syscall"
)

// MaxFiles is how many files this process may open, 0 if that is not known.
func MaxFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	return int(min(files.Cur, math.MaxInt32))
}
