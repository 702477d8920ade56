//go:build unix

package web

import (
	"errors"
	"syscall"
)

// maxConnections bounds the open connections of a listener to half of the files
// that the process may open, so that the other half is left for NATS and its
// store. 0 means fasthttp's own bound of 262,144.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	const most = 1 << 18
	return int(min(files.Cur/2, most))
}

// outOfFiles reports whether no connection could be accepted for lack of file
// handles.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
