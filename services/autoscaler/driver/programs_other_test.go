//go:build !linux

package driver

// programs are none: the tests that kill programs need Linux.
var programs map[string]func(args []string)
