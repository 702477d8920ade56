package autoscaler

import (
	"context"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
)

// phaseTimeout bounds the write of a phase, for which a start waits.
const phaseTimeout = 2 * time.Second

// startup is one start of a pod, and how far it has come.
type startup struct {
	*agent
	was    pod.Pod
	phases pod.Phases
	began  time.Time
	alone  bool // the pod was left alone
	undo   func(context.Context)
}

// startupOf is a start that begins now. undo is called if the pod is left alone.
func (a *agent) startupOf(p pod.Pod, undo func(context.Context)) *startup {
	return &startup{agent: a, was: p, phases: pod.Phases{Life: p.Starts}, began: a.queue.Now().UTC(), undo: undo}
}

// leave notes that the pod was left alone.
func (s *startup) leave(ctx context.Context) {
	s.alone = true
	s.undo(ctx)
}

// enter notes that a start has come to a phase. A start goes on without it: the next
// phase is written with the times of those before.
func (s *startup) enter(ctx context.Context, phase pod.Phase) {
	s.phases = s.phases.Enter(phase, s.was.Starts, s.queue.Now())
	within, cancel := context.WithTimeout(ctx, phaseTimeout)
	defer cancel()
	s.warn(ctx, "phase of a pod not noted", s.was.ID, s.write(within, func(*pod.Pod) {}))
}

// done notes that the pod runs, unless it was left alone and that is noted. Nothing is heard
// of a pod that works for no endpoint: it is ready.
func (s *startup) done(ctx context.Context) {
	if phase, _ := s.was.Phase(); s.alone && (phase == pod.Loading || phase == pod.Ready) {
		return
	}
	last := pod.Loading
	if s.was.Endpoint == "" {
		last = pod.Ready
	}
	s.phases = s.phases.Enter(pod.Starting, s.was.Starts, s.began).Enter(last, s.was.Starts, s.queue.Now())
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	s.warn(ctx, "start of a pod not noted", s.was.ID, s.write(ctx, func(p *pod.Pod) {
		if p.Started, p.Machine = s.began, s.machineFacts(); p.Change == waitsFor(p.Driver) {
			p.Changed, p.Change = s.began, "started"
		}
	}))
	s.log.InfoContext(ctx, "pod started", "pod", s.was.ID, "endpoint", s.was.Endpoint, "driver", s.driver.Name())
}

// write stores the phases, with what change sets besides, unless the pod was stopped or
// started again meanwhile.
func (s *startup) write(ctx context.Context, change func(*pod.Pod)) error {
	return s.changePod(ctx, s.was.ID, func(p *pod.Pod) bool {
		if p.Starts != s.was.Starts {
			return false
		}
		p.Phases, p.Sleep = s.phases, pod.Sleep{Took: p.Sleep.Took} // what starts is awake
		change(p)
		return true
	})
}

// noteReady begins to note that a worker that runs here is ready, once it was heard of
// since its start.
func (a *agent) noteReady(ctx context.Context, p pod.Pod) {
	w := a.registry.Workers.Last(p.Endpoint, p.ID).Worker
	if !readyBy(p, w) {
		return
	}
	a.begin(p.ID, func() {
		a.warn(ctx, "a worker that is ready not noted, trying again", p.ID, a.changePod(ctx, p.ID, func(x *pod.Pod) bool {
			if !readyBy(*x, w) {
				return false
			}
			x.Phases = x.Phases.Enter(pod.Ready, x.Starts, w.Seen)
			return true
		}))
	})
}

// readyBy reports whether a heartbeat makes the pod's worker ready: it is none of an
// earlier start, and none that the autoscaler sends in place of a worker that starts.
func readyBy(p pod.Pod, w registry.Worker) bool {
	phase, _ := p.Phase()
	heard := w.State == registry.WorkerIdle || w.State == registry.WorkerRunning || w.State == registry.WorkerThrottled
	return phase != "" && phase != pod.Ready && heard && w.Seen.After(p.Phases.Begun())
}
