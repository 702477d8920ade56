package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"flightline/e2e/gauge"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	pollInterval = 5 * time.Millisecond
)

// target is a system that runs.
type target struct {
	bench *bench
	name  string
	// build is the program of flightline, dir has the store and the logs.
	build, dir string
	processes  []*child
	client     *client
	// stats is the address that counts the jobs that were worked off, "" for a target
	// without workers; counter asks there.
	stats   string
	counter *client
}

// child is one process of a target.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a process whose output goes to a file in the target's folder.
func (t *target) start(ctx context.Context, name string, args ...string) (*child, error) {
	path := filepath.Join(t.dir, fmt.Sprintf("%d.log", len(t.processes)))
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the systems that are measured
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the end of a process that is needed shows in the next request
		close(p.done)
	}()
	t.processes = append(t.processes, p)
	return p, nil
}

// listening waits until an address takes connections.
func (t *target) listening(ctx context.Context, address string) error {
	return t.until(ctx, address+" to listen", func() bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	})
}

// until waits for a fact, and fails when the last process that was started ends before it.
func (t *target) until(ctx context.Context, what string, fact func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	last := t.processes[len(t.processes)-1]
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !fact() {
		select {
		case <-tick.C:
		case <-last.done:
			log, _ := os.ReadFile(filepath.Join(t.dir, fmt.Sprintf("%d.log", len(t.processes)-1)))
			return fmt.Errorf("%s ended: %s", last.cmd.Path, log)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// end terminates a process and returns how long that took.
func (p *child) end() (time.Duration, error) {
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	select {
	case <-p.done:
		return time.Since(began), nil
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
		return time.Since(began), fmt.Errorf("%s did not end within %s", p.cmd.Path, stopTimeout)
	}
}

// stop ends the processes, the last one first, and removes the store.
func (t *target) stop() {
	for _, p := range slices.Backward(t.processes) {
		if _, err := p.end(); err != nil {
			t.bench.log.Error("stop", "system", t.name, "err", err)
		}
	}
	_ = os.RemoveAll(t.dir)
}

// freeAddress is an address on loopback that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// cpu is the CPU time so far of all processes of the target.
func (t *target) cpu() (sum time.Duration) {
	for _, p := range t.processes {
		sum += gauge.CPUTime(p.cmd.Process.Pid)
	}
	return sum
}

func (t *target) resident() (sum float64) {
	for _, p := range t.processes {
		sum += gauge.Resident(p.cmd.Process.Pid)
	}
	return sum
}
