//go:build !linux

package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// Without /proc only the group of a command is known: what leaves it is not
// found, and what outlives a killed program is killed by no one.

func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() }

func birthOf(int) string { return "" }

func bootID() string { return "" }

func killRecorded(record) {}

func killMarked(context.Context, string, time.Duration) error { return nil }

func killMarkedAll(context.Context, []string, time.Duration) error { return nil }

func killPod(pid int, _ []string) { killGroup(pid) }

type reaper struct{}

func (p *Process) startReaper(context.Context) *reaper { return nil }

func (r *reaper) dismiss() {}

// RunReaper returns errors.ErrUnsupported: here it could not find the processes.
func RunReaper(context.Context, io.Reader, string, time.Duration) error {
	return fmt.Errorf("driver: reaper: %w", errors.ErrUnsupported)
}
