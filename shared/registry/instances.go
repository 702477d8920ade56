package registry

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/telemetry"
)

const (
	// seenTimeout bounds WaitSeen. It is longer than MaxStaleness, and a call under way
	// when a cache lost it.
	seenTimeout = 5 * time.Second
	// seenInterval is the pause between two looks.
	seenInterval = 50 * time.Millisecond
	// leaveTimeout bounds the goodbye of an instance.
	leaveTimeout = 2 * time.Second
)

// NoEndpoints is the Endpoints of an instance that is not waited for.
const NoEndpoints = math.MaxUint64

// Instance is a process that serves a role, and sees changes of endpoints.
type Instance struct {
	// ID matches [A-Za-z0-9_-]{1,128} and is new with each start.
	ID string `json:"id"`
	// Role is the name of the service, as "api", or a DriverRole.
	Role string `json:"role"`
	// Endpoints is the revision up to which it has seen the endpoints, NoEndpoints of a
	// role that does not look at them.
	Endpoints uint64 `json:"endpoints"`
	// Version and Hostname are of the program and its machine, Started is when it
	// began to announce itself; "" and the zero time of an older program.
	Version  string    `json:"version,omitempty"`
	Hostname string    `json:"hostname,omitempty"`
	Started  time.Time `json:"started,omitzero"`
}

// Instances are the processes that send heartbeats.
type Instances struct {
	table             *Table[Instance]
	endpoints         *cache[endpoint.Endpoint]
	log               *slog.Logger
	version, hostname string
}

// SetProgram sets what instances of this process announce of it; "" is unknown. It is
// to be called before Announce.
func (i *Instances) SetProgram(version, hostname string) { i.version, i.hostname = version, hostname }

// Announce beats for the instance until ctx ends, and at once when it has seen
// a change of an endpoint. Registry.Run must be running. It returns nil at the
// end of ctx, or an ErrInvalid.
func (i *Instances) Announce(ctx context.Context, instance Instance) error {
	if !pod.ValidID(instance.ID) {
		return fmt.Errorf("%w: instance %q", ErrInvalid, instance.ID)
	}
	instance.Version, instance.Hostname, instance.Started = i.version, i.hostname, time.Now().UTC()
	defer func() {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		_ = i.table.Delete(leave, instance.ID) // else it expires
	}()
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		seen, changed := i.endpoints.seen()
		if instance.Endpoints != NoEndpoints {
			instance.Endpoints = seen
		}
		pause := BeatEvery
		if err := i.table.Put(ctx, instance.ID, instance); err != nil && ctx.Err() == nil {
			outage.Warn(ctx, i.log, "instance could not beat", slog.String("instance", instance.ID), slog.Any("err", err))
			changed, pause = nil, BeatAgainAfter // not again before the pause is over
		}
		select {
		case <-changed:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// List returns the instances that live.
func (i *Instances) List(ctx context.Context) ([]Instance, error) { return i.table.List(ctx) }

// driverRole begins the role of an autoscaler's driver: "autoscaler_process".
const driverRole = RoleAutoscaler + "_"

// DriverRole is the role of the instances that run pods by this driver; the id
// of such an instance is the machine's.
func DriverRole(d pod.Driver) string { return driverRole + string(d) }

// Machines returns the ids of the machines that run pods now, by driver.
func (i *Instances) Machines(ctx context.Context) (map[pod.Driver][]string, error) {
	instances, err := i.List(ctx)
	if err != nil {
		return nil, err
	}
	machines := map[pod.Driver][]string{}
	for _, x := range instances {
		if name, ok := strings.CutPrefix(x.Role, driverRole); ok {
			machines[pod.Driver(name)] = append(machines[pod.Driver(name)], x.ID)
		}
	}
	return machines, nil
}

// WaitSeen returns nil once every living instance has seen the revision of an
// endpoint that Endpoints.MarkDeleting returned. After 5 s it returns nil in
// any case: an instance that lags for MaxStaleness no longer believes its cache and
// sees the bucket itself.
func (i *Instances) WaitSeen(ctx context.Context, revision uint64) error {
	deadline := time.NewTimer(seenTimeout)
	defer deadline.Stop()
	for {
		instances, err := i.table.List(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(instances, func(x Instance) bool { return x.Endpoints < revision }) {
			return nil
		}
		select {
		case <-time.After(seenInterval):
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
