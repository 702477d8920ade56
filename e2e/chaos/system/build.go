package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The programs that are built, by their import paths.
const (
	flightlinePackage = "flightline/services/flightline"
	handlerPackage    = "flightline/e2e/chaos/handler"
	pollerPackage     = "flightline/e2e/chaos/poller"
	natsPackage       = "github.com/nats-io/nats-server/v2"
)

// Build builds what c names no path of, into dir: Binary, Handler, Poller and NATS. Clock
// is not among them.
func (c *Config) Build(ctx context.Context, dir string) error {
	for _, p := range []struct {
		path       *string
		name, from string
	}{
		{&c.Binary, "flightline", flightlinePackage},
		{&c.Handler, "handler", handlerPackage},
		{&c.Poller, "poller", pollerPackage},
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

// clockFile names the variable with the path of the file in which a program of
// BuildClock finds by how many seconds its clock is wrong.
const clockFile = "CHAOS_CLOCK_FILE"

// clockSource is a file of package time. Go programs do not ask libc for the
// time, so no preloaded library can change it.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var chaosOffset atomic.Int64

func init() {
	path, found := syscall.Getenv("` + clockFile + `")
	if !found {
		return
	}
	go func() { // Now itself is called where nothing may be read
		for ; ; Sleep(50 * Millisecond) {
			fd, err := open(path)
			if err != nil {
				continue
			}
			var text [20]byte
			n, _ := read(fd, text[:])
			closefd(fd)
			if seconds, err := atoi(text[:max(0, n)]); err == nil {
				chaosOffset.Store(int64(seconds))
			}
		}
	}()
}
`

// BuildClock builds c.Clock into dir, from the same source as Binary unless that
// was given.
func (c *Config) BuildClock(ctx context.Context, dir string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find package time: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return fmt.Errorf("read package time: %w", err)
	}
	const now = "	sec, nsec, mono := runtimeNow()\n"
	begin, rest, found := strings.Cut(string(text), "func Now() Time {\n"+now)
	if !found {
		return errors.New("package time of this Go is another than the scenario clock-step knows")
	}
	changed := begin + "func Now() Time {\n" + now + "	sec += chaosOffset.Load()\n" + rest
	timePath, clockPath, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "clock.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"): timePath, filepath.Join(source, "chaos.go"): clockPath,
	}})
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	for path, text := range map[string]string{timePath: changed, clockPath: clockSource, overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the overlay: %w", err)
		}
	}
	c.Clock = filepath.Join(dir, "flightline-clock")
	return build(ctx, c.Clock, flightlinePackage, "-overlay", overlay)
}
