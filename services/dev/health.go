package dev

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/cli"
	"flightline/shared/process"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// errDisconnected is what the check of the connection fails with.
var errDisconnected = errors.New("not connected")

// healthOf is what the process says of itself. JetStream has to be answered by
// the leader of a stream that every role needs.
func (n *node) healthOf(p plan, js jetstream.JetStream) *web.Health {
	checks := []web.Check{
		{Name: "nats", Look: func(context.Context) error {
			if p.nc.Status() != nats.CONNECTED {
				return errDisconnected
			}
			return nil
		}},
		{Name: "jetstream", Look: func(ctx context.Context) error {
			_, err := js.Stream(ctx, streams.Bucket(streams.BucketEndpoints))
			return err
		}},
		{Name: "storage", Look: func(context.Context) error { return n.takesWrites(p.restarts) }},
	}
	checks = append(checks, spaceCheck(n.space), web.Check{Name: "streams", Say: func(context.Context) string { return missingWord(n.queue.Missing()) }})
	return web.NewHealth(p.version, p.roles, append(checks, n.standing...)...)
}

// missingWord says how many streams were found missing; "" for none. The process
// stays ready: it serves the endpoints that have theirs.
func missingWord(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d missing", len(names))
}

// stands adds to health whether this process is the active one of the role.
// One that stands by is as ready: it has nothing to answer.
func (n *node) stands(role string, election *registry.Election, instance string) {
	n.standing = append(n.standing, web.Check{Name: role, Say: func(ctx context.Context) string {
		leader, err := election.Active(ctx)
		switch {
		case errors.Is(err, registry.ErrNotFound):
			return "nobody is active"
		case err != nil:
			return "unknown"
		case leader.Instance == instance:
			return "active"
		}
		return "standby"
	}})
}

// listen is the part that answers HTTP. Told to stop, it is first unready for
// the plan's delay, and serves meanwhile.
func listen(p plan, h *web.Health, serve func(context.Context) error) process.Part {
	return process.Part{Name: "http", Grace: p.drainDelay + process.StopGrace, Run: func(ctx context.Context) error {
		drained, done := h.Drained(ctx, p.drainDelay)
		defer done()
		return serve(drained)
	}}
}

// unready says that the process stops. It is the last part, the first to be told:
// those between it and HTTP may take long to end.
func unready(h *web.Health) process.Part {
	return process.Part{Name: "ready", Run: func(ctx context.Context) error {
		<-ctx.Done()
		h.Stop()
		return nil
	}}
}

// drains checks the setting of the delay.
func (c ServeConfig) drains() error {
	if c.DrainDelay < 0 || c.DrainDelay > mostDrainDelay {
		return &cli.UsageError{Err: fmt.Errorf("--drain-delay %s: must be 0 to %s", c.DrainDelay, mostDrainDelay)}
	}
	return nil
}
