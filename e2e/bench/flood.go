package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/logs"
)

// floodRate is what a worker prints in a second, in bytes.
const floodRate = 100 << 20

// floodJobs is ourJobs beside a worker that prints floodRate of lines into a pipe. If kept
// is true a recorder reads it, as a driver's does; else nobody keeps it.
func floodJobs(kept bool) func(context.Context, *round) (reading, error) {
	return func(ctx context.Context, r *round) (reading, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		var g errgroup.Group
		var printed atomic.Int64
		g.Go(func() error { return flood(ctx, write, &printed) })
		to := io.Discard
		if kept {
			lines := logs.NewRecorder(bus.Bind(r.nc), logs.Source{Endpoint: busyEndpoint, Worker: "flood"}, nil)
			defer lines.End()
			g.Go(func() error { return lines.Run(ctx) })
			to = lines.Stream(logs.Stdout)
		}
		g.Go(func() error {
			_, err := io.Copy(to, read)
			return err
		})
		began := time.Now()
		got, err := ourJobs(ctx, r)
		rate := float64(printed.Load()) / time.Since(began).Seconds() / (1 << 20)
		cancel()
		if ended := g.Wait(); err == nil {
			err = ended
		}
		_ = read.Close()
		return got.with("printed", "MiB/s", rate), err
	}
}

// flood writes lines until ctx ends, then closes the pipe.
func flood(ctx context.Context, to io.WriteCloser, printed *atomic.Int64) error {
	defer func() { _ = to.Close() }() // the reader gets the end
	const interval = 10 * time.Millisecond
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	piece := bytes.Repeat(line, floodRate/100/len(line))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n, err := to.Write(piece)
		printed.Add(int64(n))
		if err != nil {
			return err
		}
	}
}
