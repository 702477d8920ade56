//go:build unix

package web

import (
	"errors"
	"syscall"
)

// passes reports whether no connection could be accepted for lack of file
// handles or memory, which does not last.
func passes(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
