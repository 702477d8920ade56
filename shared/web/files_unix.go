//go:build unix

package web

import (
	"errors"
	"math"
	"syscall"
)

// maxFiles is how many files the process may open, 0 if that is not known.
func maxFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	return int(min(files.Cur, math.MaxInt32))
}

// passes reports whether no connection could be accepted for lack of file
// handles or memory, which does not last.
func passes(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
