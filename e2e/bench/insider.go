package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/queue"
	"flightline/shared/registry"
)

// insider is what a child stands on that works with the queue itself. Close its
// nc.
type insider struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	q   *queue.Queue
	reg *registry.Registry
}

func newInsider(ctx context.Context, cfg config, name string, qc queue.Config) (in insider, err error) {
	if in.nc, err = cfg.connect(name); err != nil {
		return in, err
	}
	defer func() {
		if err != nil {
			in.nc.Close()
		}
	}()
	if in.js, err = jetstream.New(in.nc); err != nil {
		return in, err
	}
	if in.q, err = queue.New(ctx, in.nc, qc); err != nil {
		return in, err
	}
	in.reg, err = registry.New(ctx, in.js, nil)
	return in, err
}
