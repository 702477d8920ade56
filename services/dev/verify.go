package dev

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/operate"
	"flightline/shared/endpoint"
	"flightline/shared/process"
	"flightline/shared/registry"
	"flightline/streams"
)

// verify is the part that looks, once, for damage in what a NATS of the user's
// own has stored, and marks the queues that lost messages as tellDamage does. The
// role of control does it for all.
func (p plan) verify(js jetstream.JetStream, reg *registry.Registry) process.Part {
	return process.Part{Name: "verify", Run: func(ctx context.Context) error {
		endpoints, err := reg.Endpoints.List(ctx)
		var damaged []string
		if err == nil {
			damaged, err = operate.VerifyStored(ctx, p.nc, p.verified(endpoints), p.log)
		}
		for _, name := range damaged {
			if _, queue := streams.EndpointOfQueue(name); queue {
				err = errors.Join(err, streams.MarkRecovered(ctx, js, name, time.Now()))
			}
		}
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "not all stored messages were looked at for damage", "err", err)
		}
		return nil
	}}
}

// verified are the streams that control may read.
func (p plan) verified(endpoints []endpoint.Endpoint) []string {
	access := streams.AccessOf(streams.Config{Partitions: p.partitions}, streams.RoleControl, "*")
	names := slices.DeleteFunc(slices.Concat(access.Reads, access.Follows), func(name string) bool { return name == streams.Any })
	for _, e := range endpoints {
		names = append(names, streams.Jobs(e.ID))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
