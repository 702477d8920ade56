package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

const (
	// maxStarting bounds the workers that start of one answer.
	maxStarting = 100
	// failuresOver is the time over which failures of workers are counted.
	failuresOver = time.Hour
)

// workerStart is a worker that is not ready yet.
type workerStart struct {
	id    string
	phase pod.Phase
	since time.Time
	// usual is how long the phase usually lasts, 0 if that is unknown.
	usual time.Duration
	// missing are the models that its machine did not have.
	missing []string
}

// startsOf are the starts of the endpoint's workers that go on, by their begin.
func startsOf(pods []pod.Pod, endpointID string) []workerStart {
	var all []workerStart
	usual := map[pod.Phase]time.Duration{}
	for _, p := range pods {
		phase, since := p.Phase()
		if p.Endpoint == endpointID && p.Status == pod.Running && p.Sleep.Wakes() {
			all = append(all, workerStart{id: p.ID, phase: pod.Waking, since: p.Sleep.Wake, usual: pod.UsualWake(pods, endpointID)})
			continue
		}
		if p.Endpoint != endpointID || phase == "" || phase == pod.Ready {
			continue
		}
		if _, known := usual[phase]; !known {
			usual[phase] = pod.Usual(pods, endpointID, phase)
		}
		all = append(all, workerStart{p.ID, phase, since, usual[phase], p.MissingModels})
	}
	slices.SortStableFunc(all, func(a, b workerStart) int { return a.since.Compare(b.since) })
	return all
}

// phaseTexts say what a worker does in a phase.
var phaseTexts = map[pod.Phase]string{pod.Pulling: "pulling the image", pod.Starting: "starting", pod.Loading: "loading", pod.Waking: "waking"}

// startingText says which workers start, and how far they have come; "" for none.
func (x explanation) startingText() string {
	var parts []string
	others := x.workers[registry.WorkerInitializing]
	for _, phase := range append(slices.Clone(pod.AllPhases), pod.Waking) {
		var in []workerStart
		for _, s := range x.starts {
			if s.phase == phase {
				in = append(in, s)
			}
		}
		if len(in) > 0 {
			parts = append(parts, startsText(in, x.now))
		}
		if phase != pod.Waking { // those say that they sleep
			others -= len(in)
		}
	}
	switch {
	case others == 1:
		parts = append(parts, "1 worker starts")
	case others > 1:
		parts = append(parts, workers(others)+" start")
	}
	return strings.Join(parts, ", ")
}

// asleepText says how many workers sleep, and how long one takes to wake; "" for none.
func (x explanation) asleepText() string {
	n := x.workers[registry.WorkerSleeping]
	for _, s := range x.starts {
		if s.phase == pod.Waking {
			n--
		}
	}
	if n <= 0 {
		return ""
	}
	text := workers(n) + " sleep"
	if n == 1 {
		text += "s"
	}
	if x.usualWake > 0 && (x.decision == nil || x.decision.Reason != registry.ScalingNoGPU) {
		text += "; it wakes in about " + lasting(x.usualWake)
	}
	return text
}

// startsText is about starts in one phase, the first of which began first.
func startsText(in []workerStart, now time.Time) string {
	lasts := lasting(max(0, now.Sub(in[0].since)))
	text := fmt.Sprintf("1 worker has been %s for %s", phaseTexts[in[0].phase], lasts)
	if len(in) > 1 {
		text = fmt.Sprintf("%s have been %s, the first for %s", workers(len(in)), phaseTexts[in[0].phase], lasts)
	}
	if in[0].usual > 0 {
		text += ", usually " + lasting(in[0].usual)
	}
	var missing []string
	for _, s := range in {
		missing = append(missing, s.missing...)
	}
	slices.Sort(missing)
	switch missing = slices.Compact(missing); {
	case len(missing) > 0 && len(in) == 1:
		text += " (its machine did not have " + strings.Join(missing, ", ") + ")"
	case len(missing) > 0:
		text += " (some machines did not have " + strings.Join(missing, ", ") + ")"
	}
	return text
}

// failureText says that workers failed, and how the last one did; "" if none has within
// failuresOver, or if the autoscaler says it.
func (x explanation) failureText() string {
	switch {
	case x.failure == nil || x.failure.Count == 0 || x.decision != nil && x.decision.Reason == registry.ScalingBackoff:
		return ""
	case x.failure.Count == 1:
		return "; 1 worker failed in the last hour: " + x.failure.Text
	}
	return fmt.Sprintf("; %d workers failed in the last hour, the last: %s", x.failure.Count, x.failure.Text)
}

// countFailures counts the endpoint's workers that failed within failuresOver.
func countFailures(pods []pod.Pod, e endpoint.Endpoint, now time.Time) (n int) {
	for _, p := range pods {
		if failedFor(p, e) && now.Sub(p.Changed) < failuresOver {
			n++
		}
	}
	return n
}

// failedFor reports whether the pod was a worker of this endpoint, not of an earlier one
// of the same id, and failed.
func failedFor(p pod.Pod, e endpoint.Endpoint) bool {
	return p.Endpoint == e.ID && !p.Changed.Before(e.Created) && p.Failed()
}

// coldStart is the start of p, the pod of the job's worker, if it began after the job was
// submitted; else nil.
func coldStart(j *job.Job, p pod.Pod) *api.Startup {
	if j.Status == job.InQueue || !p.Phases.Begun().After(j.Submitted) {
		return nil
	}
	return api.StartupOf(p)
}

// startingOf are the starts as the answer has them.
func startingOf(starts []workerStart) []api.StartingWorker {
	var all []api.StartingWorker
	for _, s := range starts[:min(len(starts), maxStarting)] {
		all = append(all, api.StartingWorker{WorkerID: s.id, Phase: s.phase, Since: api.FormatTime(s.since), UsualMs: s.usual.Milliseconds(), MissingModels: s.missing})
	}
	return all
}
