//go:build !linux

package system

import (
	"errors"
	"os/exec"
)

// endWithParent does nothing: only Linux can tell a process that its parent
// ended.
func endWithParent(*exec.Cmd) {}

const canMount = false

func mountSmall(string, int64) error { return errors.ErrUnsupported }

func resizeSmall(string, int64) error { return errors.ErrUnsupported }

func fillSmall(string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
