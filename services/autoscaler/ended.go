package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// noteEnded notes what had ended when this program first looked.
func (a *agent) noteEnded(running []driver.Instance) {
	if a.before != nil {
		return
	}
	a.before = map[string]time.Time{}
	for _, i := range running {
		if !i.Running {
			a.before[i.PodID] = i.Started
		}
	}
}

// endedBefore reports whether what has ended did so before this program looked. No clocks
// are compared: that of the driver may be another machine's.
func (a *agent) endedBefore(i driver.Instance) bool {
	started, found := a.before[i.PodID]
	return found && started.Equal(i.Started)
}

// ended notes that a pod has ended by itself, or starts it again if it said
// that it would.
func (a *agent) ended(ctx context.Context, p pod.Pod, i driver.Instance) {
	var token registry.Token
	if p.Endpoint != "" {
		var err error
		token, err = a.registry.Tokens.Find(ctx, p.Endpoint, p.ID)
		if err == nil && !token.Draining && !token.Refreshed.IsZero() { // a start makes a new token
			if err := a.noteRefreshed(ctx, p, token.Refreshed); err != nil {
				a.warn(ctx, "restart of a worker not noted, trying again", p.ID, err)
				return
			}
			a.start(ctx, p.ID)
			return
		}
	}
	by, why := pod.Exit, "it ended by itself"
	if i.Code >= 0 {
		why += fmt.Sprintf(" with code %d", i.Code)
	}
	if i.Code == 0 && p.Endpoint != "" && p.Phases.Ready.IsZero() {
		why += fmt.Sprintf(" before it asked for jobs, as a worker does (for a program that runs once for each job the command is 'flightline worker %s -- PROGRAM')", p.Endpoint)
	}
	if i.Reason != "" {
		why += ": " + i.Reason
	}
	switch {
	case a.endedBefore(i):
		why = vanished
	case (token.Draining || !p.Drain.At.IsZero()) && i.Code == 0:
		by, why = pod.Leave, "it was drained, and ended"
	case p.Sleep.Sleeps() && i.Code == 0:
		by, why = pod.Leave, "it was to sleep, and ended"
	}
	if a.exit(ctx, p, by, why) { // else it would be started again
		a.warn(ctx, "what is left of an ended pod not removed, trying again", p.ID, a.removeInstance(ctx, p))
	}
}

// noteRefreshed notes that a pod's worker ended a job at at and restarts itself, which is
// another start of it: for another agent of the same engine, too, the container that has
// ended is of an earlier one. It returns errPodChanged if that is noted already.
func (a *agent) noteRefreshed(ctx context.Context, p pod.Pod, at time.Time) error {
	return a.changePod(ctx, p.ID, func(x *pod.Pod) bool {
		if x.Starts != p.Starts {
			return false
		}
		x.Refreshed = at
		x.Starts++
		return true
	})
}

// exit writes that a pod has ended, and which jobs its worker had, and lets that in no more,
// unless the pod was started again meanwhile. It reports whether that is on record; if not,
// the next look leads here again.
func (a *agent) exit(ctx context.Context, p pod.Pod, by pod.Trigger, why string) bool {
	why = pod.Conceal(why, p.Spec.Env) // whole, before anything is cut off
	w, _, err := a.lastHeartbeat(ctx, p)
	a.warn(ctx, "jobs of a pod not noted, their leases end", p.ID, err)
	now := a.queue.Now()
	_, err = a.registry.Pods.Move(ctx, p.ID, by, bounded(why), now, func(x *pod.Pod) error {
		if x.Starts != p.Starts {
			return errPodChanged
		}
		noteHeld(x, w, now)
		return nil
	})
	if err != nil && !errors.Is(err, pod.ErrNotFound) {
		a.warn(ctx, "end of a pod not noted, trying again", p.ID, err)
		return false
	}
	level := slog.LevelInfo
	if by == pod.Exit && why != vanished { // nobody asked for it
		level = slog.LevelWarn
	}
	a.log.Log(ctx, level, "pod ended", "pod", p.ID, "endpoint", p.Endpoint, "reason", why)
	a.revokeToken(ctx, p)
	return true
}

// noteHeld notes in a pod's record what its worker, which has ended, had by its last
// heartbeat. It reports false of a worker that left nothing: it ended well, without a job.
func noteHeld(p *pod.Pod, w registry.Worker, now time.Time) bool {
	if len(w.Running) == 0 && !p.Failed() {
		return false
	}
	p.Cut, p.Gone = w.Running, now.UTC()
	return true
}

// revokeToken removes what let a worker in.
func (a *agent) revokeToken(ctx context.Context, p pod.Pod) {
	if p.Endpoint == "" {
		return
	}
	if err := a.registry.Tokens.Revoke(ctx, p.Endpoint, p.ID); err != nil && !errors.Is(err, registry.ErrNotFound) {
		a.warn(ctx, "token of a pod not revoked", p.ID, err)
	}
	a.warn(ctx, "heartbeat of a pod not removed, it expires", p.ID, a.registry.Workers.Remove(ctx, p.Endpoint, p.ID))
}

// textOf is what a driver says of a pod that cannot be started, without what
// the pod's record says already.
func textOf(id string, err error) string {
	text := strings.TrimPrefix(err.Error(), "start pod "+id+": ")
	return strings.ReplaceAll(text, pod.ErrInvalid.Error()+": ", "")
}
