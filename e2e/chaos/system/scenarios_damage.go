package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// damagedBlock overwrites records of jobs that have ended. dev may say what is
// damaged and refuse to start, or to accept jobs; what it accepts it must keep.
func damagedBlock(ctx context.Context, w *world) error {
	const before, bytes = 40, 200
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(2*workerSlots, 0); err != nil {
		return err
	}
	if err := w.lightLoad(ctx, 2*time.Second, func() error { return w.begun(ctx, before) }); err != nil {
		return err
	}
	w.settle(ctx)
	w.book.retire(time.Now())
	if err := errors.Join(w.dev.ask(), w.dev.ended(ctx, readyTimeout)); err != nil {
		return err
	}
	blocks, err := w.lastBlocks("KV_records")
	if err != nil {
		return err
	}
	for _, path := range blocks {
		if err := overwrite(path, bytes); err != nil {
			return err
		}
	}
	w.count("block damaged")
	w.mayRefuse = true
	if err := w.startDev(ctx); err != nil {
		if said := w.dev.lastLine(); !strings.Contains(said, "damaged") {
			w.violate(ruleServes, "dev does not start and does not say what is damaged: %s", said)
		}
		w.note("dev refused to start: %s", w.dev.lastLine())
		return nil
	}
	w.note("dev says: %s", w.dev.lastLine())
	return w.lightLoad(ctx, 3*time.Second, func() error { return nil })
}

// overwrite replaces bytes in the middle of a file.
func overwrite(path string, n int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("damage a block: %w", err)
	}
	defer f.Close() //nolint:errcheck // WriteAt said how it went
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("damage a block: %w", err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("x", n)), info.Size()/2); err != nil {
		return fmt.Errorf("damage a block: %w", err)
	}
	return nil
}
