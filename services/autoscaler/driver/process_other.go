//go:build !linux

package driver

import (
	"context"
	"time"
)

// Without /proc only the group of a command is known: what leaves it is not
// found, and what outlives a killed program is killed by no one.

func awaitExit(int) {}

func birthOf(int) string { return "" }

func bootID() string { return "" }

func killRecorded(record) {}

func killMarked(context.Context, string, time.Duration) error { return nil }

func killMarkedAll(context.Context, []string, time.Duration) error { return nil }

func killPod(pid int, _ []string, done <-chan struct{}) {
	select {
	case <-done:
	default:
		killGroup(pid)
	}
}

type watchman struct{}

func (p *Process) newWatchman(context.Context) *watchman { return nil }

func (w *watchman) dismiss() {}
