//go:build !unix

package worker

import "os/exec"

// lead does nothing: without process groups, the end of the context kills the
// command alone.
func lead(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}
