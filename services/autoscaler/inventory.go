package autoscaler

import (
	"context"
	"sync"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

// inventoryInterval is the pause between two looks at the GPUs of this machine: asking
// NVIDIA's driver takes up to a second of its time.
const inventoryInterval = 30 * time.Second

// report says which GPUs and models this machine has until ctx ends. A machine that had none when
// its driver answered is not asked again: cards do not come while it runs.
func (a *agent) report(ctx context.Context) {
	looked := time.Now()
	failed := make(chan struct{}, 1) // a card did
	if a.cfg.GPUs == nil && len(a.facts.GPUs) > 0 {
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { a.watch.Run(ctx, a.log, func() { offer(failed) }) })
	}
	for ctx.Err() == nil {
		if a.cfg.GPUs != nil || len(a.facts.GPUs) > 0 && time.Since(looked) >= inventoryInterval {
			a.look(ctx)
			looked = time.Now()
		}
		pause := registry.BeatEvery
		err := a.registry.GPUs.Report(ctx, registry.Inventory{ID: a.machine, Driver: a.driver.Name(), Hostname: a.facts.Hostname, GPUs: a.gpus(), Models: a.models()})
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "GPUs of this machine not reported, trying again", "driver", a.driver.Name(), "err", err)
			pause = registry.BeatAgainAfter
		}
		select {
		case <-failed:
			looked = time.Time{} // look now
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func offer(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// look reads the GPUs again. What cannot be read stays as it was.
func (a *agent) look(ctx context.Context) {
	var found []pod.GPU
	if a.cfg.GPUs == nil {
		found = a.watch.GPUs(ctx, a.log)
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
