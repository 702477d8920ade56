package app

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"flightline/services/admin"
	"flightline/shared/endpoint"
	"flightline/shared/process"
	"flightline/shared/registry"
)

// inspector answers how the installation is, by the plan's settings.
func (p plan) inspector(n *node) (*admin.Inspector, error) {
	cfg := admin.InspectorConfig{
		Doctor: admin.DoctorConfig{Streams: p.streams(), Log: p.log},
		Endpoints: func(ctx context.Context) ([]endpoint.Endpoint, error) {
			endpoints, err := n.registry.Endpoints.Known(ctx)
			if err != nil {
				return nil, err
			}
			deleting, err := n.registry.Endpoints.Deleting(ctx)
			return append(slices.Clone(endpoints), deleting...), err
		},
		Failed: n.storage.Failed,
	}
	if p.own != nil {
		cfg.Doctor.Sync, cfg.Disk = p.own.sync, diskSpace(p.own.store)
	}
	return admin.NewInspector(p.nc, cfg)
}

// announced are the roles that this package announces; each other one does itself.
var announced = []string{roleControl, roleRecorder, roleWebhook, roleConsole}

// announce adds the heartbeats of the roles that announce nothing by themselves.
func (n *node) announce(roles []string) {
	for _, role := range announced {
		if !slices.Contains(roles, role) {
			continue
		}
		instance := registry.Instance{ID: uuid.NewString(), Role: role}
		if role == roleConsole { // it asks the API
			instance.Endpoints = registry.NoEndpoints
		}
		n.parts = append(n.parts, process.Part{Name: "announce " + role, Run: func(ctx context.Context) error { return n.registry.Instances.Announce(ctx, instance) }})
	}
}
