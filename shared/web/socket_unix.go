//go:build unix

package web

import (
	"errors"
	"net"
	"syscall"
)

// gone looks whether the other side has closed. It goes past the read deadlines
// that fasthttp sets, hence Control and not Read.
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
	err = raw.Control(func(fd uintptr) { closed = hungUp(fd) })
	return err != nil || closed
}

// passes reports whether no connection could be accepted for lack of file
// handles or memory, which does not last.
func passes(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
