//go:build !unix

package web

// maxConnections knows no limit of files here.
func maxConnections() int { return 0 }

func outOfFiles(error) bool { return false }
