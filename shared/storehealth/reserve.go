package storehealth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"flightline/shared/retry"
)

const (
	// reservePart of the whole is kept for jobs that were accepted: their records,
	// results and events. maxReserve bounds it, in bytes, maxInodes in files.
	reservePart = 20
	maxReserve  = 1 << 30
	maxInodes   = 1000
	// maxSpaceAge is how old a measurement may be that refuses jobs.
	maxSpaceAge = 10 * time.Second
)

// Space is how much a store has room for.
type Space struct {
	// Free and Total are in bytes. A Total of 0 means that they are not known.
	Free, Total uint64
	// FreeInodes is how many files can still be made, Inodes how many there may be: 0
	// where the file system does not bound them, or is not known.
	FreeInodes, Inodes uint64
}

// Reserve is what is kept free for jobs that were accepted: a twentieth of Total,
// at most 1 GiB.
func (s Space) Reserve() uint64 { return min(s.Total/reservePart, maxReserve) }

// reservedInodes are kept as well: a twentieth of Inodes, at most 1000.
func (s Space) reservedInodes() uint64 { return min(s.Inodes/reservePart, maxInodes) }

// Low reports whether no more jobs should be accepted.
func (s Space) Low() bool { return s.Free < s.Reserve() || s.FreeInodes < s.reservedInodes() }

// Scarce reports whether less than half of what is kept is left: only ends of jobs
// should take it.
func (s Space) Scarce() bool {
	return s.Free < s.Reserve()/2 || s.FreeInodes < s.reservedInodes()/2
}

// Shortage says what there is too little of: the free bytes or inodes, and how many are kept.
func (s Space) Shortage() string {
	free, reserve, unit := s.Free, s.Reserve(), "bytes"
	if free >= reserve {
		free, reserve, unit = s.FreeInodes, s.reservedInodes(), "inodes"
	}
	return fmt.Sprintf("%d %s are free, and %d are kept for jobs that were accepted", free, unit, reserve)
}

// SpaceConfig says where a SpaceMonitor looks.
type SpaceConfig struct {
	// Look measures. Required. What it could not measure refuses nobody.
	Look func(context.Context) (Space, error)
	// Interval is the pause between two looks. Required.
	Interval time.Duration
	// Log gets a line when space is low, and when it is not any more. Nil discards it.
	Log *slog.Logger
}

// SpaceMonitor knows whether a store is nearly full. It is safe for concurrent use.
type SpaceMonitor struct {
	cfg  SpaceConfig
	log  *slog.Logger
	last atomic.Pointer[measurement]
}

type measurement struct {
	Space
	at time.Time
}

// NewSpaceMonitor returns a monitor that has measured nothing. It starts nothing.
func NewSpaceMonitor(cfg SpaceConfig) *SpaceMonitor {
	return &SpaceMonitor{cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))}
}

// Low returns the last measurement if it is Low and not older than 10 s. It costs
// next to nothing.
func (m *SpaceMonitor) Low() (s Space, low bool) {
	last := m.last.Load()
	if last == nil || !last.Low() || time.Since(last.at) > maxSpaceAge {
		return Space{}, false
	}
	return last.Space, true
}

// Run measures until ctx ends.
func (m *SpaceMonitor) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		m.measure(ctx)
		_ = retry.Sleep(ctx, m.cfg.Interval) // the loop sees the end of ctx
	}
	return nil
}

func (m *SpaceMonitor) measure(ctx context.Context) {
	_, before := m.Low()
	s, err := m.cfg.Look(ctx)
	if err != nil {
		m.log.DebugContext(ctx, "free space not measured", "err", err)
		return
	}
	m.last.Store(&measurement{s, time.Now()})
	switch {
	case s.Low() && !before:
		m.log.ErrorContext(ctx, "the storage is nearly full: new jobs are refused, those that were accepted go on",
			"why", s.Shortage(), "free_bytes", s.Free, "total_bytes", s.Total, "free_inodes", s.FreeInodes, "inodes", s.Inodes)
	case before && !s.Low():
		m.log.WarnContext(ctx, "there is space again: new jobs are accepted", "free_bytes", s.Free, "free_inodes", s.FreeInodes)
	}
}
