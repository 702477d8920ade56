package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"flightline/services/cli"
)

const (
	key          = "key-of-the-peers"
	busyEndpoint = "busy"
	// quietEndpoint has no worker.
	quietEndpoint = "quiet"
	slots         = 64
	bullmqFolder  = "bullmq"
)

// system is what can be measured.
type system struct {
	name string
	// sync is that of flightline; "default" is none. redis is Redis's appendfsync.
	sync, redis string
	// slow says that each write is fsynced by itself.
	slow  bool
	start func(context.Context, *target, system) error
}

func systems() []system {
	return []system{
		{name: "flightline-default", sync: "default", start: startFlightline},
		{name: "flightline-interval", sync: "interval", start: startFlightline},
		{name: "flightline-group", sync: "group", start: startFlightline},
		{name: "flightline-always", sync: "always", slow: true, start: startFlightline},
		{name: "bullmq-everysec", redis: "everysec", start: startBullMQ},
		{name: "bullmq-always", redis: "always", start: startBullMQ},
		{name: "asynq-everysec", redis: "everysec", start: startAsynq},
		{name: "asynq-always", redis: "always", slow: true, start: startAsynq},
		{name: "echo", start: startEcho},
	}
}

func names() (all []string) {
	for _, s := range systems() {
		all = append(all, s.name)
	}
	return all
}

// choose returns the systems that are named, by default all whose figures differ:
// flightline-group is what the default does.
func choose(only string) ([]system, error) {
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if only != "" && !slices.Contains(names(), name) {
			return nil, fmt.Errorf("unknown system %q: want one of %s", name, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(systems(), func(s system) bool {
		if only == "" {
			return s.name == "flightline-group"
		}
		return !slices.Contains(wanted, s.name)
	}), nil
}

// startFlightline starts dev with its roles, makes two endpoints and starts a worker of one of them.
func startFlightline(ctx context.Context, t *target, s system) error {
	if _, err := t.startDev(ctx, s.sync); err != nil {
		return err
	}
	for _, id := range []string{busyEndpoint, quietEndpoint} {
		if err := t.client.createEndpoint(id, 0); err != nil {
			return err
		}
	}
	return t.startWorker(ctx)
}

func (t *target) data() string { return filepath.Join(t.dir, "data") }

// startDev starts `flightline dev`. Its rate limits are off and its ports are free ones;
// all else is the default.
func (t *target) startDev(ctx context.Context, sync string) (*child, error) {
	const anyPort = "127.0.0.1:0"
	args := []string{
		"dev", "--data", t.data(), "--api-key", key, "--limits", "off", "--no-demo",
		"--listen", anyPort, "--nats-listen", anyPort, "--metrics-listen", anyPort,
	}
	if sync != "default" {
		args = append(args, "--sync", sync)
	}
	dev, err := t.start(ctx, t.build, args...)
	if err != nil {
		return nil, err
	}
	var running cli.Running
	err = t.until(ctx, "dev", func() bool {
		running, err = cli.FindRunning(t.data())
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	t.client = newClient(strings.TrimPrefix(running.URL, "http://"), "/v2/"+busyEndpoint)
	return dev, t.listening(ctx, t.client.host.Addr)
}

func (t *target) startWorker(ctx context.Context) (err error) {
	if t.stats, err = freeAddress(ctx); err != nil {
		return err
	}
	if err := t.startRole(ctx, roleWorker, t.data(), t.stats); err != nil {
		return err
	}
	return t.listening(ctx, t.stats)
}

// startRole starts this program in a role.
func (t *target) startRole(ctx context.Context, role string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = t.start(ctx, self, append([]string{role}, args...)...)
	return err
}

func (t *target) startRedis(ctx context.Context, fsync string) (string, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return "", err
	}
	_, err = t.start(ctx, "redis-server", "--port", port(address), "--bind", "127.0.0.1", "--dir", t.dir,
		"--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--maxmemory-policy", "noeviction")
	if err != nil {
		return "", err
	}
	return address, t.listening(ctx, address)
}

func startBullMQ(ctx context.Context, t *target, s system) error {
	redis, err := t.startRedis(ctx, s.redis)
	if err != nil {
		return err
	}
	front, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	if t.stats, err = freeAddress(ctx); err != nil {
		return err
	}
	for role, address := range map[string]string{"front": front, "worker": t.stats} {
		if _, err := t.start(ctx, "node", filepath.Join(bullmqFolder, "peer.js"), role, port(address), port(redis), key); err != nil {
			return err
		}
		if err := t.listening(ctx, address); err != nil {
			return err
		}
	}
	t.client = newClient(front, "")
	return nil
}

func startAsynq(ctx context.Context, t *target, s system) error {
	redis, err := t.startRedis(ctx, s.redis)
	if err != nil {
		return err
	}
	return t.startPeer(ctx, roleAsynq, redis)
}

func startEcho(ctx context.Context, t *target, _ system) error { return t.startPeer(ctx, roleEcho) }

// startPeer starts this program as a server whose first argument is its address.
func (t *target) startPeer(ctx context.Context, role string, args ...string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	if err := t.startRole(ctx, role, append([]string{address}, args...)...); err != nil {
		return err
	}
	t.client = newClient(address, "")
	if role != roleEcho {
		t.stats = cmp.Or(t.stats, address)
	}
	return t.listening(ctx, address)
}
