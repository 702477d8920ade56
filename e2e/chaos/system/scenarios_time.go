package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// timeScenarios change dev's clock, and its version.
func timeScenarios() []scenario {
	return []scenario{
		{
			name: "clock-step", does: "the clock of dev is set forward by an hour and back, and back by an hour and forward; jobs run through it",
			needs: []need{needClock}, long: true, act: clockStep,
		},
		{
			name: "versions", does: "another version of dev and of workers is replaced by this one under load; its workers live on beside the new ones",
			needs: []need{needOther}, long: true, rule: rule{end: 4 * minLease}, act: versions,
		},
	}
}

func clockStep(ctx context.Context, w *world) error {
	const jobs, pause = 2 * workerSlots, 8 * time.Second
	path := filepath.Join(w.dir, "clock")
	w.program, w.devEnv = w.cfg.Clock, []string{clockFile + "=" + path}
	set := func(seconds int) error {
		w.count(fmt.Sprintf("clock set to %+ds", seconds))
		err := os.WriteFile(path+".new", fmt.Append(nil, seconds), 0o600)
		return errors.Join(err, os.Rename(path+".new", path))
	}
	if err := w.simple(ctx, "--retention", "24h"); err != nil {
		return err
	}
	if _, err := w.fleetOf(2*jobs, 0); err != nil {
		return err
	}
	gate := w.gate("clock")
	if err := w.gated(ctx, jobs, gate); err != nil {
		return err
	}
	if err := w.begun(ctx, jobs); err != nil {
		return err
	}
	const hour = 3600
	steps := []int{hour, 0, -hour, 0}
	return w.lightLoad(ctx, time.Duration(len(steps)+1)*pause, func() error {
		for _, seconds := range steps {
			wait(ctx, pause)
			if err := set(seconds); err != nil {
				return err
			}
		}
		wait(ctx, minLease+pause)
		return w.open(gate)
	})
}

func versions(ctx context.Context, w *world) error {
	const pause = 4 * time.Second
	this := w.cfg.Binary
	w.program, w.cfg.Binary = w.cfg.Other, w.cfg.Other
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(workerSlots, 0); err != nil {
		return err
	}
	return w.lightLoad(ctx, 4*pause, func() error {
		wait(ctx, pause)
		w.count("dev replaced by another version")
		w.program, w.cfg.Binary = this, this
		if err := errors.Join(w.dev.ask(), w.dev.ended(ctx, readyTimeout)); err != nil {
			return err
		}
		if err := w.startDev(ctx); err != nil {
			return err
		}
		_, err := w.fleetOf(workerSlots, 1)
		wait(ctx, pause)
		return err
	})
}
