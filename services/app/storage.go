package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/shirou/gopsutil/v4/disk"

	"flightline/services/admin"
	"flightline/shared/bus/embedded"
	"flightline/shared/endpoint"
	"flightline/shared/metrics"
	"flightline/shared/process"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/storehealth"
	"flightline/shared/web"
	"flightline/streams"
)

// monitorOf is the monitor of the streams that the plan's roles write.
func monitorOf(p plan) *storehealth.Monitor {
	var written []string
	for _, role := range p.roles {
		for _, name := range streams.Written(streams.Config{Partitions: p.partitions}, streams.Role(role)) {
			if name != streams.Any { // a queue is checked once a write to it was not answered
				written = append(written, name)
			}
		}
	}
	slices.Sort(written)
	cfg := storehealth.Config{NC: p.nc, Streams: slices.Compact(written), Log: p.log}
	if p.own != nil {
		cfg.More = p.own.failed
	}
	return storehealth.NewMonitor(cfg)
}

// observer reports to the metrics what the queue did, and to the monitor of writes that
// were not answered.
func (n *node) observer(r *metrics.Registry) queue.Observer {
	r.AddStorage(func() int { return len(n.storage.Failed()) })
	o := r.Observer()
	o.Unwritten = n.storage.Suspect
	return o
}

// takesWrites is the check of readiness.
func (n *node) takesWrites(p plan) error {
	if p.own != nil && p.own.checkPlace() != nil {
		return web.ShownError("the data folder was removed or replaced since the start; put it back before you stop")
	}
	summary := storehealth.Summary(n.storage.Failed())
	switch {
	case summary == "":
		return nil
	case p.own != nil:
		return web.ShownError(summary + "; NATS is restarted once the data folder takes writes")
	}
	return web.ShownError(summary + "; restart NATS once its disk takes writes")
}

// unsynced are the streams of which an fsync has failed.
func unsynced(b *embedded.Barrier) []storehealth.Failure {
	var all []storehealth.Failure
	for stream, reason := range b.Failed() {
		all = append(all, storehealth.Failure{Stream: stream, Reason: reason})
	}
	return all
}

// reportDamage logs what is damaged in the store and what that means, a line for
// each place, and marks the queues that lost messages: the records of jobs that
// ran there must not be taken for forgotten ones.
func reportDamage(ctx context.Context, nc *nats.Conn, found []embedded.Damage, kept string, log *slog.Logger) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	for _, d := range found {
		facts := []any{"stream", d.Stream, "file", d.File, "offset", d.Offset, "bytes", d.Bytes, "messages_at_most", d.Messages, "means", meaningOf(d), "copy_in", kept}
		if d.Torn {
			log.WarnContext(ctx, "the end of a file of the store is torn, as after a power loss or a kill in the middle of a write; what was written last there is left out", facts...)
		} else {
			log.ErrorContext(ctx, "a file of the store is damaged; what can be read is kept", facts...)
		}
		if _, queue := streams.EndpointOfQueue(d.Stream); queue && !d.Settings() {
			if err := streams.MarkRecovered(ctx, js, d.Stream, time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// meaningOf says what it means for people that a part of a stream is damaged.
func meaningOf(d embedded.Damage) string {
	if d.Settings() {
		return "the stream or consumer is made again, with the messages that it has"
	}
	return admin.MeaningOfLoss(d.Stream)
}

// verify is the part that looks, once, for damage in what a NATS of the user's
// own has stored, and marks the queues that lost messages as reportDamage does. The
// role of control does it for all.
func (p plan) verify(js jetstream.JetStream, reg *registry.Registry) process.Part {
	return process.Part{Name: "verify", Run: func(ctx context.Context) error {
		endpoints, err := reg.Endpoints.List(ctx)
		var damaged []string
		if err == nil {
			damaged, err = admin.VerifyStored(ctx, p.nc, p.verified(endpoints), p.log)
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

const (
	// diskInterval is the pause between two looks at the file system, which cost
	// some microseconds; accountInterval that between two questions to NATS.
	diskInterval    = 200 * time.Millisecond
	accountInterval = 2 * time.Second
)

// diskSpace is what the file system of a folder has room for.
func diskSpace(folder string) func(context.Context) (storehealth.Space, error) {
	return func(ctx context.Context) (storehealth.Space, error) {
		u, err := disk.UsageWithContext(ctx, folder)
		if err != nil {
			return storehealth.Space{}, fmt.Errorf("look at the file system of %s: %w", folder, err)
		}
		return storehealth.Space{Free: u.Free, Total: u.Total, FreeInodes: u.InodesFree, Inodes: u.InodesTotal}, nil
	}
}

// accountSpace is what the account's limit of JetStream has room for. The disk of
// a NATS elsewhere cannot be seen.
func accountSpace(js jetstream.JetStream) func(context.Context) (storehealth.Space, error) {
	return func(ctx context.Context) (storehealth.Space, error) {
		asked, cancel := context.WithTimeout(ctx, accountInterval)
		defer cancel()
		info, err := js.AccountInfo(asked)
		if err != nil {
			return storehealth.Space{}, fmt.Errorf("ask for the limits of the account: %w", err)
		}
		least := spaceOf(info.Tier)
		for _, tier := range info.Tiers { // limits by number of copies
			if s := spaceOf(tier); s.Total > 0 && (least.Total == 0 || s.Free < least.Free) {
				least = s
			}
		}
		return least, nil
	}
}

func spaceOf(t jetstream.Tier) storehealth.Space {
	if t.Limits.MaxStore <= 0 {
		return storehealth.Space{}
	}
	total := uint64(t.Limits.MaxStore)
	return storehealth.Space{Free: total - min(t.Store, total), Total: total}
}

// spaceMonitor watches the space of the plan's NATS.
func (p plan) spaceMonitor(js jetstream.JetStream) *storehealth.SpaceMonitor {
	cfg := storehealth.SpaceConfig{Look: accountSpace(js), Interval: accountInterval, Log: p.log}
	if p.own != nil {
		cfg.Look, cfg.Interval = diskSpace(p.own.store), diskInterval
	}
	return storehealth.NewSpaceMonitor(cfg)
}

// refuseWhile returns an error while the storage is nearly full and tooFull reports true.
func refuseWhile(m *storehealth.SpaceMonitor, tooFull func(storehealth.Space) bool) func() error {
	return func() error {
		if s, low := m.Low(); low && tooFull(s) {
			return &queue.SpaceError{Shortage: s.Shortage()}
		}
		return nil
	}
}

// spaceCheck says on the routes of health that new jobs are refused. The process
// stays ready: it answers everything else.
func spaceCheck(m *storehealth.SpaceMonitor) web.Check {
	return web.Check{Name: "space", Say: func(context.Context) string {
		if _, low := m.Low(); low {
			return "nearly full, new jobs are refused"
		}
		return ""
	}}
}
