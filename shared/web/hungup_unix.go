//go:build unix && !linux

package web

import (
	"errors"
	"syscall"
)

// hungUp looks at the socket without taking anything from it, so that who left
// over TLS, or with more to read, is noticed when an answer is written.
func hungUp(fd uintptr) bool {
	var one [1]byte
	n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case err == nil:
		return n == 0
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return false
	}
	return true
}
