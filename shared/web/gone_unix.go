//go:build unix && !linux

package web

import (
	"errors"
	"net"
	"syscall"
)

// gone looks at the socket without taking anything from it, so that who left
// over TLS, or with more to read, is noticed when an answer is written. It goes past the
// read deadlines that fasthttp sets, hence Control and not Read.
func gone(conn net.Conn) bool {
	socket, ok := inner(conn).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == nil:
			closed = n == 0
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		default:
			closed = true
		}
	})
	return err != nil || closed
}
