package system

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// The programs that are built, by their import paths.
const (
	flightlinePackage = "flightline/services/flightline"
	handlerPackage    = "flightline/e2e/chaos/handler"
	natsPackage       = "github.com/nats-io/nats-server/v2"
)

// Build builds what c names no path of, into dir: Binary, Handler and NATS. Clock
// is not among them.
func (c *Config) Build(ctx context.Context, dir string) error {
	for _, p := range []struct {
		path       *string
		name, from string
	}{
		{&c.Binary, "flightline", flightlinePackage},
		{&c.Handler, "handler", handlerPackage},
		{&c.NATS, "nats-server", natsPackage},
	} {
		if *p.path != "" {
			continue
		}
		*p.path = filepath.Join(dir, p.name)
		if err := build(ctx, *p.path, p.from); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, path, from string, flags ...string) error {
	args := append([]string{"build", "-ldflags=-s -w", "-o", path}, flags...)
	if text, err := exec.CommandContext(ctx, "go", append(args, from)...).CombinedOutput(); err != nil { //nolint:gosec // one of our own packages
		return fmt.Errorf("build %s %v: %w: %s", from, flags, err, text)
	}
	return nil
}
