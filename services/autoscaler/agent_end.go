package autoscaler

import (
	"context"
	"errors"
	"fmt"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// ended notes that a pod has ended by itself, or starts it again if it said
// that it would.
func (a *agent) ended(ctx context.Context, p pod.Pod, i driver.Instance) {
	var token registry.Token
	if p.Endpoint != "" {
		var err error
		token, err = a.registry.Tokens.Find(ctx, p.Endpoint, p.ID)
		if err == nil && !token.Draining && token.Refreshed.After(i.Started) && !i.Started.IsZero() {
			a.start(ctx, p.ID)
			return
		}
	}
	by, why := pod.Exit, fmt.Sprintf("it ended by itself with code %d", i.Code)
	if i.Reason != "" {
		why += ": " + i.Reason
	}
	switch {
	case i.Ended.Before(a.began):
		why = vanished // in an earlier life
	case (token.Draining || !p.Drain.At.IsZero()) && i.Code == 0:
		by, why = pod.Leave, "it was drained, and ended"
	}
	if a.exit(ctx, p, by, why) { // else it would be started again
		a.complain(ctx, "ended pod not forgotten, trying again", p.ID, a.driver.Forget(ctx, p.ID))
	}
}

// exit writes that a pod has ended, and lets its worker in no more. It reports
// whether that is on record; if not, the next look leads here again.
func (a *agent) exit(ctx context.Context, p pod.Pod, by pod.Trigger, why string) bool {
	why = pod.Conceal(why, p.Spec.Env) // whole, before anything is cut off
	_, err := a.registry.Pods.Move(ctx, p.ID, by, bounded(why), a.queue.Now(), nil)
	if err != nil && !errors.Is(err, pod.ErrNotFound) {
		a.complain(ctx, "end of a pod not noted, trying again", p.ID, err)
		return false
	}
	a.log.InfoContext(ctx, "pod ended", "pod", p.ID, "endpoint", p.Endpoint, "reason", why)
	a.farewell(ctx, p)
	return true
}

// farewell removes what let a worker in.
func (a *agent) farewell(ctx context.Context, p pod.Pod) {
	if p.Endpoint == "" {
		return
	}
	if err := a.registry.Tokens.Revoke(ctx, p.Endpoint, p.ID); err != nil && !errors.Is(err, registry.ErrNotFound) {
		a.complain(ctx, "token of a pod not revoked", p.ID, err)
	}
	a.complain(ctx, "heartbeat of a pod not removed, it expires", p.ID, a.registry.Workers.Remove(ctx, p.Endpoint, p.ID))
}
