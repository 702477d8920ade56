package web

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// gone asks the kernel whether the other side has closed, whatever of what it
// sent is not read yet: over TLS that is its good-bye. It goes past the read
// deadlines that fasthttp sets, hence Control and not Read.
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
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // the kernel's are that small
		n, err := unix.Poll(ask, 0)
		closed = err == nil && n > 0
	})
	return err != nil || closed
}
