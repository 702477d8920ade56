package dev

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/shirou/gopsutil/v4/disk"

	"flightline/shared/queue"
	"flightline/shared/storage"
	"flightline/shared/web"
)

const (
	// diskInterval is the pause between two looks at the file system, which cost
	// some microseconds; accountInterval that between two questions to NATS.
	diskInterval    = 200 * time.Millisecond
	accountInterval = 2 * time.Second
)

// diskSpace is what the file system of a folder has room for.
func diskSpace(folder string) func(context.Context) (storage.Space, error) {
	return func(ctx context.Context) (storage.Space, error) {
		u, err := disk.UsageWithContext(ctx, folder)
		if err != nil {
			return storage.Space{}, fmt.Errorf("look at the file system of %s: %w", folder, err)
		}
		return storage.Space{Free: u.Free, Total: u.Total}, nil
	}
}

// accountSpace is what the account's limit of JetStream has room for. The disk of
// a NATS elsewhere cannot be seen.
func accountSpace(js jetstream.JetStream) func(context.Context) (storage.Space, error) {
	return func(ctx context.Context) (storage.Space, error) {
		asked, cancel := context.WithTimeout(ctx, accountInterval)
		defer cancel()
		info, err := js.AccountInfo(asked)
		if err != nil {
			return storage.Space{}, fmt.Errorf("ask for the limits of the account: %w", err)
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

func spaceOf(t jetstream.Tier) storage.Space {
	if t.Limits.MaxStore <= 0 {
		return storage.Space{}
	}
	total := uint64(t.Limits.MaxStore)
	return storage.Space{Free: total - min(t.Store, total), Total: total}
}

// spaceMonitor watches the space of the plan's NATS.
func (p plan) spaceMonitor(js jetstream.JetStream) *storage.SpaceMonitor {
	cfg := storage.SpaceConfig{Look: accountSpace(js), Interval: accountInterval, Log: p.log}
	if p.store != "" {
		cfg.Look, cfg.Interval = diskSpace(p.store), diskInterval
	}
	return storage.NewSpaceMonitor(cfg)
}

// hasSpace refuses new jobs while the storage is nearly full.
func hasSpace(m *storage.SpaceMonitor) func() error {
	return func() error {
		if s, low := m.Low(); low {
			return &queue.SpaceError{Free: s.Free, Reserve: s.Reserve()}
		}
		return nil
	}
}

// spaceCheck says on the routes of health that new jobs are refused. The process
// stays ready: it answers everything else.
func spaceCheck(m *storage.SpaceMonitor) web.Check {
	return web.Check{Name: "space", Say: func(context.Context) string {
		if _, low := m.Low(); low {
			return "nearly full, new jobs are refused"
		}
		return ""
	}}
}
