package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"flightline/services/cli"
)

const (
	// devKey is the key of an installation on loopback which lives for a measurement.
	devKey = "fl_key_of_the_bench"
	// devReadyTimeout bounds the start of dev and of what is asked of it.
	devReadyTimeout = 2 * time.Minute
)

// devServer is a `flightline dev` of the bench's own.
type devServer struct {
	cmd           *exec.Cmd
	program, data string
	at            cli.Running
}

// startDev builds flightline and starts it with data in a folder of this name.
func (b *bench) startDev(ctx context.Context, folder string, args ...string) (*devServer, error) {
	d := &devServer{program: filepath.Join(b.dir, "flightline"), data: filepath.Join(b.dir, folder)}
	build := exec.CommandContext(ctx, "go", "build", "-o", d.program, "flightline/services/flightline") //nolint:gosec // our own
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	args = append([]string{"dev", "--data", d.data, "--api-key", devKey, "--limits", "off", "--no-demo", "--listen", anyPort, "--nats-listen", anyPort}, args...)
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), d.program, args...) //nolint:gosec // our own
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if err := d.awaitReady(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// awaitReady waits until dev says where it is, and answers there.
func (d *devServer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devReadyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		at, err := cli.FindRunning(d.data)
		if err == nil {
			res, err := http.Get(at.URL + "/readyz") //nolint:noctx // a dev of our own, on loopback
			if err == nil {
				_ = res.Body.Close()
				if res.StatusCode == http.StatusOK {
					d.at = at
					return nil
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// stop ends dev and its workers.
func (d *devServer) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopWithin, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	_ = d.cmd.Wait()
}
