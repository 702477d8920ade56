//go:build !unix

package driver

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Without process groups no pod can be ended with all that it started, so none
// is started: no folder can be had.

func lockFolder(string) (*os.File, error) {
	return nil, fmt.Errorf("driver: processes of this system: %w", errors.ErrUnsupported)
}

func leader() *syscall.SysProcAttr { return nil }

func killGroup(int) {}

func terminateGroup(int) {}
