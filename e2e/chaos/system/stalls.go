package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// stall is a time in which the machine stood still: neither its disk nor its
// processors did the little that was asked of them.
type stall struct{ from, until time.Time }

// stalls are in order, and no two overlap. What a job waited within them is the
// machine's doing, so a promise about time does not count it.
type stalls []stall

// within is how long the machine stood still between two instants.
func (s stalls) within(from, until time.Time) (d time.Duration) {
	for _, one := range s {
		begin, end := one.from, one.until
		if begin.Before(from) {
			begin = from
		}
		if end.After(until) {
			end = until
		}
		d += max(0, end.Sub(begin))
	}
	return d
}

const (
	// probeInterval is the pause between two writes.
	probeInterval = 200 * time.Millisecond
	// probeTime is what a pause and a write take on a machine that is merely busy.
	probeTime = probeInterval + 300*time.Millisecond
)

// watchStalls writes a file to disk again and again until ctx ends, and notes when
// that took longer than it should.
func watchStalls(ctx context.Context, path string, note func(stall)) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("watch for stalls: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for began := time.Now(); wait(ctx, probeInterval); began = time.Now() {
		if _, err := f.WriteAt([]byte("is there a disk?"), 0); err != nil {
			return fmt.Errorf("watch for stalls: %w", err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("watch for stalls: %w", err)
		}
		if now := time.Now(); now.Sub(began) > probeTime {
			note(stall{began.Add(probeTime), now})
		}
	}
	return nil
}
