package embedded_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/bus/embedded"
)

// BenchmarkBarrier is what a durable write costs with many writers and with
// one: fsynced by the server each for itself (always), waiting at the barrier
// in this process or over TCP (group, remote), or not waited for (lazy).
func BenchmarkBarrier(b *testing.B) {
	for _, writers := range []int{1, 64} {
		for _, mode := range []string{"always", "group", "remote", "lazy"} {
			b.Run(fmt.Sprintf("%s/writers=%d", mode, writers), func(b *testing.B) {
				nc, wait := benchServer(b, mode)
				publishSide(b, nc, writers, wait)
			})
		}
	}
}

// benchServer starts a server and returns a connection to it and what a
// writer has to wait for.
func benchServer(b *testing.B, mode string) (*nats.Conn, barrier.Func) {
	b.Helper()
	cfg := embedded.Config{Dir: b.TempDir(), SyncAlways: mode == "always"}
	if mode == "remote" {
		cfg.Listen, cfg.User, cfg.Password = "127.0.0.1:0", "u", "p"
	}
	s := start(b, cfg)
	nc := dial(b, s)
	createStream(b, nc, "S")
	switch mode {
	case "group":
		return nc, s.Barrier().Sync
	case "remote":
		serve(b, s)
		remote, err := bus.Connect(bus.Config{URL: s.URL(), User: "u", Password: "p"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(remote.Close)
		return remote, barrier.NewRemote(remote, prefix).Sync
	}
	return nc, func(context.Context, string) error { return nil }
}

func publishSide(b *testing.B, nc *nats.Conn, writers int, wait barrier.Func) {
	b.Helper()
	payload := make([]byte, 256)
	var next atomic.Int64
	var g errgroup.Group
	b.ResetTimer()
	for range writers {
		g.Go(func() error {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if _, err := nc.Request("s."+strconv.FormatInt(n, 10), payload, 5*time.Second); err != nil {
					return err
				}
				if err := wait(b.Context(), "S"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

const prefix = "durable."

// serve offers the server's barrier to other processes.
func serve(b *testing.B, s *embedded.Server) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	nc := dial(b, s)
	done := make(chan error, 1)
	go func() { done <- barrier.Serve(ctx, nc, prefix, s.Barrier().Sync) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("serve: %v", err)
		}
	})
	for barrier.NewRemote(nc, prefix).Sync(b.Context(), "S") != nil { // until it is served
		if b.Context().Err() != nil {
			b.Fatal("no barrier is served")
		}
	}
}
