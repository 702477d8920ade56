package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/api"
	"flightline/services/cli"
	"flightline/services/control"
	"flightline/shared/bus/barrier"
	"flightline/shared/process"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

// The roles that can be served.
const (
	roleAPI     = "api"
	roleControl = "control"
	roleAll     = "all"
)

// roles lists those that have a part of their own.
func roles() []string { return []string{roleAPI, roleControl} }

// plan is what a node is made from.
type plan struct {
	nc       *nats.Conn
	listener net.Listener
	// roles are some of roles().
	roles                []string
	replicas, partitions int
	// adminKey is put in, unless it is "".
	adminKey string
	// durable is where writers wait, nil if the server's setting decides.
	durable barrier.Func
	log     *slog.Logger
}

// node is the roles of one process, ready to run.
type node struct {
	registry *registry.Registry
	parts    []process.Part // in the order of their start
}

// assemble makes the streams exist and builds the roles on top. It starts
// nothing.
func assemble(ctx context.Context, p plan) (*node, error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	if p.partitions, err = partitionsOf(ctx, js, p.partitions); err != nil {
		return nil, err
	}
	if err := streams.Apply(ctx, js, streams.Config{Replicas: p.replicas, Partitions: p.partitions}); err != nil {
		return nil, err
	}
	q, err := queue.New(ctx, p.nc, queue.Config{Replicas: p.replicas, Durable: p.durable, Log: p.log})
	if err != nil {
		return nil, err
	}
	reg, err := registry.New(ctx, js, p.log)
	if err != nil {
		return nil, err
	}
	if p.adminKey != "" {
		spec := registry.KeySpec{Name: "administrator", Scopes: registry.AllScopes()}
		_, err := reg.Keys.Put(ctx, p.adminKey, spec)
		if errors.Is(err, registry.ErrInvalid) {
			return nil, &cli.UsageError{Err: fmt.Errorf("the administrator's key: %w", err)}
		}
		if err != nil {
			return nil, err
		}
	}
	n := &node{registry: reg, parts: []process.Part{{Name: "queue", Run: q.Run}, {Name: "registry", Run: reg.Run}}}
	return n, n.serve(p, q) //nolint:contextcheck // requests bring their own
}

// serve adds the parts of the roles, HTTP last: it is what needs all others.
func (n *node) serve(p plan, q *queue.Queue) error {
	app := web.New(web.Config{Log: p.log})
	if slices.Contains(p.roles, roleControl) {
		s, err := control.New(control.Config{Partitions: p.partitions, Log: p.log}, control.Deps{Queue: q, Registry: n.registry})
		if err != nil {
			return err
		}
		s.Routes(app)
		n.parts = append(n.parts, process.Part{Name: roleControl, Run: s.Run})
	}
	if slices.Contains(p.roles, roleAPI) {
		s, err := api.New(api.Config{Log: p.log}, api.Deps{Queue: q, Registry: n.registry})
		if err != nil {
			return err
		}
		s.Routes(app)
		deadlines := func(ctx context.Context) error { return q.Deadlines(ctx, p.partitions) }
		n.parts = append(n.parts, process.Part{Name: roleAPI, Run: s.Run}, process.Part{Name: "deadlines", Run: deadlines})
	}
	n.parts = append(n.parts, process.Part{Name: "http", Run: func(ctx context.Context) error {
		return web.Serve(ctx, app, p.listener)
	}})
	return nil
}

// partitionsOf is how many partitions there are once the wanted ones exist.
// Fewer must not be used: the deadlines of jobs in the rest would fire unseen.
func partitionsOf(ctx context.Context, js jetstream.JetStream, wanted int) (int, error) {
	for n := max(1, wanted); ; n++ {
		_, err := js.Stream(ctx, streams.Records(n)) // counted from 0
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("count partitions: %w", err)
		}
	}
}
