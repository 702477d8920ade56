package autoscaler

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/telemetry"
	"flightline/shared/wakeup"
)

// inventoryInterval is the pause between two looks at the GPUs of this machine: asking
// NVIDIA's driver takes up to a second of its time.
const inventoryInterval = 30 * time.Second

// report says which GPUs and models this machine has until ctx ends, again once the GPUs
// were read.
func (a *agent) report(ctx context.Context) {
	read := wakeup.New()
	var looks sync.WaitGroup
	defer looks.Wait()
	looks.Go(func() { a.watchGPUs(ctx, read) })
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		pause := registry.BeatEvery
		err := a.registry.GPUs.Report(ctx, registry.Inventory{ID: a.machine, Driver: a.driver.Name(), Hostname: a.facts.Hostname, GPUs: a.gpus(), Models: a.models()})
		if err != nil && ctx.Err() == nil {
			outage.Warn(ctx, a.log, "GPUs of this machine not reported, trying again", slog.String("driver", string(a.driver.Name())), slog.Any("err", err))
			pause = registry.BeatAgainAfter
		}
		select {
		case <-read:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// watchGPUs reads the GPUs of this machine again and again until ctx ends. A driver that
// does not answer, as that of a card that hangs, holds up nothing but this. A machine that
// had no GPUs when its driver answered is not asked again: cards do not come while it runs.
func (a *agent) watchGPUs(ctx context.Context, read wakeup.Signal) {
	pause, failed := registry.BeatEvery, wakeup.New() // a card did
	if a.cfg.GPUs == nil {
		if len(a.facts.GPUs) == 0 {
			return
		}
		pause = inventoryInterval
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { a.watch.Run(ctx, a.log, failed.Send) })
	}
	for {
		select {
		case <-failed:
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		a.readGPUs(ctx)
		read.Send()
	}
}

// readGPUs reads the GPUs again. What cannot be read stays as it was.
func (a *agent) readGPUs(ctx context.Context) {
	var found []pod.GPU
	if a.cfg.GPUs == nil {
		found = asKnown(a.watch.GPUs(ctx, a.log), a.gpus())
	} else {
		var err error
		if found, err = a.cfg.GPUs(); err != nil {
			a.log.WarnContext(ctx, "GPUs of this machine not read, they stay as they were", "err", err)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inventory = found
}

// asKnown are the cards that were found, as they were before where less is known of them
// now: while one is lost nvidia-smi may fail for all, and the driver's files do not have the
// memory.
func asKnown(found, before []pod.GPU) []pod.GPU {
	if len(found) == 0 {
		return before
	}
	for i, g := range found {
		at := slices.IndexFunc(before, func(b pod.GPU) bool { return b.UUID == g.UUID })
		if g.MemoryMB == 0 && at >= 0 {
			found[i] = before[at]
			found[i].Health = g.Health
		}
	}
	return found
}

// gpus are the machine's, as they were last read.
func (a *agent) gpus() []pod.GPU {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inventory
}

// machineFacts are the machine's with its GPUs as they were last read.
func (a *agent) machineFacts() pod.Machine {
	facts := a.facts
	facts.GPUs = a.gpus()
	return facts
}

// withdraw says that this machine has left.
func (a *agent) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	a.warn(ctx, "machine not withdrawn, its report expires", a.machine, a.registry.GPUs.Withdraw(ctx, a.machine))
}
