package web

import "golang.org/x/sys/unix"

// hungUp asks the kernel whether the other side has closed, whatever of what it
// sent is not read yet: over TLS that is its good-bye.
func hungUp(fd uintptr) bool {
	ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // the kernel's are that small
	n, err := unix.Poll(ask, 0)
	return err == nil && n > 0
}
