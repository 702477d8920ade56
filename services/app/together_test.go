package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/testenv"
)

// Two `serve all --replicas 3` start together on an empty cluster, and both
// become ready. Each stream that both created cost one of them its whole attempt.
func TestServeStartsTogetherOnAnEmptyCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	t.Parallel()
	c := testenv.NewCluster(t).Config()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var serving errgroup.Group
	ready := make(chan struct{}, 2)
	for range cap(ready) {
		cfg, err := parsed(nil, "--replicas", "3", "--listen", "127.0.0.1:0", "--metrics-listen", "off")
		if err != nil {
			t.Fatal(err)
		}
		cfg.NATS = NATS{NATSURL: c.URL, NATSUser: c.User, NATSPassword: c.Password}
		serving.Go(func() error {
			return Serve(ctx, cfg, "", []string{roleAll}, readiness(ready), slog.New(slog.DiscardHandler), nil)
		})
	}
	for range cap(ready) {
		select {
		case <-ready:
		case <-ctx.Done():
			t.Error("not ready")
		}
	}
	cancel()
	if err := serving.Wait(); err != nil {
		t.Error(err)
	}
}

// readiness signals the line that says that a process is ready.
type readiness chan<- struct{}

func (r readiness) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "ready: ") {
		r <- struct{}{}
	}
	return len(p), nil
}
