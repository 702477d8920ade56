package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"flightline/shared/retry"
)

// leader makes a command the leader of a session, which the kernel asks to end
// when the thread that forked it does.
func leader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}

// awaitExit returns when the command has ended, and leaves it to be waited for,
// so that its number is not given to another one.
func awaitExit(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// birthOf is when a process began, in ticks since the boot; "" if it does not exist.
func birthOf(pid int) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	// The name, in brackets, may hold anything; the 20th field after it is it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// bootID identifies this boot of the machine.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // "" says that it is unknown
	return strings.TrimSpace(string(text))
}

// killRecorded kills the session of a process that an earlier life started, if
// its number still is that process's.
func killRecorded(r record) {
	if r.PID > 1 && r.Birth != "" && r.Boot == bootID() && birthOf(r.PID) == r.Birth {
		killGroup(r.PID)
	}
}

// killMarked kills every process whose environment has a variable that begins
// with mark, again and again until none is left.
func killMarked(ctx context.Context, mark string, within time.Duration) error {
	return killAll(ctx, within, func(env [][]byte) bool {
		return slices.ContainsFunc(env, func(v []byte) bool { return bytes.HasPrefix(v, []byte(mark)) })
	})
}

// killMarkedAll is killMarked for those that have all of the variables.
func killMarkedAll(ctx context.Context, marks []string, within time.Duration) error {
	return killAll(ctx, within, func(env [][]byte) bool { return hasAll(env, marks) })
}

func hasAll(env [][]byte, marks []string) bool {
	for _, m := range marks {
		if !slices.ContainsFunc(env, func(v []byte) bool { return string(v) == m }) {
			return false
		}
	}
	return true
}

func killAll(ctx context.Context, timeout time.Duration, match func([][]byte) bool) error {
	const interval = 10 * time.Millisecond
	return awaitNone(ctx, timeout, interval, match, syscall.SIGKILL)
}

// awaitNone returns nil once no process matches. At each look, one an interval, it
// sends the signal to those that do; 0 sends nothing.
func awaitNone(ctx context.Context, timeout, interval time.Duration, match func([][]byte) bool, signal syscall.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		left := matching(match)
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, signal)
		}
		if err := retry.Sleep(ctx, interval); err != nil {
			return fmt.Errorf("processes %v go on: %w", left, err)
		}
	}
}

// matching are the processes with such an environment. A process that has ended and
// is waited for has no environment.
func matching(match func([][]byte) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && len(env) > 0 && match(bytes.Split(env, []byte{0})) {
			found = append(found, pid)
		}
	}
	return found
}

// killPod kills the command's session and what left it.
func killPod(pid int, marks []string) {
	for _, other := range matching(func(env [][]byte) bool { return hasAll(env, marks) }) {
		_ = syscall.Kill(other, syscall.SIGKILL)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}
