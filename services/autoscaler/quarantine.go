package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"flightline/shared/job"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/stats"
)

const (
	// gpuFailures is how many workers in a row fail on a GPU before it is quarantined.
	gpuFailures = 3
	// defaultQuarantine is how long the first quarantine of a GPU lasts, maxQuarantine
	// how long each one does at most.
	defaultQuarantine = 5 * time.Minute
	maxQuarantine     = time.Hour
	// sameCauseInterval is how far apart two failures of an endpoint may be that are one cause.
	sameCauseInterval = time.Hour
	// probeRest is how long a worker that tries a GPU on probation must be ready if no job
	// comes.
	probeRest = 3 * time.Second
	// unhealthyReason begins the reason of a quarantine that the card itself asked for.
	unhealthyReason = "it is unhealthy: "
	// maxReason bounds what the last failure says within a reason, in characters.
	maxReason = 120
	// maxEndedGPUPods bounds the pods that are gone and that a decision goes by.
	maxEndedGPUPods = 200
)

// quarantinedDevice is the device as its GPU's quarantine makes it.
func quarantinedDevice(d placement.Device, q registry.Quarantine, now time.Time) placement.Device {
	if q.Holds(now) {
		d.Quarantine = fmt.Sprintf("until %s UTC: %s", q.Until.UTC().Format(time.DateTime), q.Reason)
	}
	d.Probation = q.Probation(now)
	return d
}

// card is a GPU with its quarantine. Two machines may have the same one.
type card struct {
	placement.Device
	quarantine registry.Quarantine
}

// gpuDecision is what should happen to a card: a quarantine, or the end of one.
type gpuDecision struct {
	uuid, machine string
	// restore ends the quarantine that began at since; forget means that it was wrong.
	restore, forget bool
	since           time.Time
	reason          string
}

// gpuEvidence is all that decisions about GPUs go by.
type gpuEvidence struct {
	now   time.Time
	cards []card
	// pods are those of fleets with GPUs, alive and gone; passed are those of them that
	// have shown that their GPUs work.
	pods   []gpuPod
	passed map[string]bool
}

// gpuPod is a pod with the fingerprint of its end, "" unless it failed on its GPUs.
type gpuPod struct {
	pod.Pod
	cause string
}

// gpuPodsOf are the pods that a decision goes by: those of fleets that have or had GPUs,
// and of those that are gone the last ones.
func gpuPodsOf(pods []pod.Pod) []gpuPod {
	var running, gone []gpuPod
	for _, p := range pods {
		switch {
		case !fleet(p) || len(p.Devices) == 0:
		case p.Status == pod.Running:
			running = append(running, gpuPod{Pod: p})
		default:
			gone = append(gone, gpuPod{Pod: p})
		}
	}
	latest := func(a, b gpuPod) int { return b.Changed.Compare(a.Changed) }
	slices.SortStableFunc(running, latest)
	slices.SortStableFunc(gone, latest)
	gone = gone[:min(len(gone), maxEndedGPUPods)]
	for i, p := range gone {
		if failedOnGPU(p.Pod) {
			gone[i].cause = stats.Fingerprint(p.Change)
		}
	}
	return append(running, gone...)
}

// decide says which cards are to be quarantined and which are restored, by UUID.
//
// A card that says that it is unhealthy is quarantined at once. Else the workers that
// failed on it in a row decide, since its last quarantine; those count that were not
// asked to end. A failure that its endpoint has on other cards too is the endpoint's. So
// may one be that no other card can disprove: then it takes two endpoints. Of a card on
// probation the first worker that was started on it decides.
func (j gpuEvidence) decide() []gpuDecision {
	var all []gpuDecision
	seen := map[string]bool{}
	for _, c := range j.cards {
		if seen[c.UUID] {
			continue
		}
		seen[c.UUID] = true
		v := gpuDecision{uuid: c.UUID, machine: c.Machine, since: c.quarantine.Since}
		switch {
		case c.quarantine.Holds(j.now):
			v.reason = j.mistakeReason(c)
			v.restore, v.forget = true, true
		case c.Health != "":
			v.reason = unhealthyReason + c.Health
		case c.quarantine.Probation(j.now):
			v.restore, v.reason = j.probeResult(c)
		default:
			v.reason = j.quarantineReason(c)
		}
		if v.reason != "" {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b gpuDecision) int { return cmp.Compare(a.uuid, b.uuid) })
	return all
}

// quarantineReason says why the card is to be quarantined for what failed on it, "" if it is not.
func (j gpuEvidence) quarantineReason(c card) string {
	row, _ := j.row(c.UUID, job.Later(c.quarantine.Since, c.quarantine.Restored), j.now)
	if len(row) < gpuFailures {
		return ""
	}
	if !slices.ContainsFunc(row, func(p gpuPod) bool { return p.Endpoint != row[0].Endpoint || j.fitsElsewhere(p) }) {
		return ""
	}
	return fmt.Sprintf("%s in a row failed on it, the last %s: %s", counted(len(row), "worker"), row[0].ID, shortened(row[0].Change, maxReason))
}

// mistakeReason says why what the card was quarantined for turned out to be the fault of an
// endpoint, "" if it did not. What a card said of itself is no endpoint's fault, also when
// the card is healthy again.
func (j gpuEvidence) mistakeReason(c card) string {
	q := c.quarantine
	if q.By != "" || c.Health != "" || strings.HasPrefix(q.Reason, unhealthyReason) {
		return ""
	}
	row, ofEndpoint := j.row(c.UUID, time.Time{}, q.Since)
	if len(row) >= gpuFailures || len(row)+len(ofEndpoint) < gpuFailures {
		return ""
	}
	return fmt.Sprintf("workers of %s fail on other GPUs too", ofEndpoint[0].Endpoint)
}

// probeResult decides about a card on probation by the workers that were started on it since. It
// returns no reason while none has shown anything.
func (j gpuEvidence) probeResult(c card) (restore bool, reason string) {
	for _, p := range j.pods {
		if !slices.Contains(p.Devices, c.UUID) || p.Created.Before(c.quarantine.Until) {
			continue
		}
		switch {
		case p.cause != "" && !j.isEndpointFault(p):
			return false, fmt.Sprintf("the worker %s that tried it failed: %s", p.ID, shortened(p.Change, maxReason))
		case j.passed[p.ID], p.Status != pod.Running && !workedAt(p.Pod, j.now).IsZero():
			return true, fmt.Sprintf("the worker %s works on it", p.ID)
		}
	}
	return false, ""
}

// row returns the failures on a card in a row, between two times, the last first, without
// those that were the fault of their endpoints, which are ofEndpoint.
func (j gpuEvidence) row(uuid string, after, until time.Time) (row, ofEndpoint []gpuPod) {
	var last time.Time // success
	var failed []gpuPod
	for _, p := range j.pods {
		if !slices.Contains(p.Devices, uuid) {
			continue
		}
		if at := workedAt(p.Pod, j.now); !at.After(until) {
			last = job.Later(last, at)
		}
		if p.cause != "" && p.Changed.After(after) && !p.Changed.After(until) {
			failed = append(failed, p)
		}
	}
	slices.SortFunc(failed, func(a, b gpuPod) int { return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(b.ID, a.ID)) })
	for _, p := range failed {
		switch {
		case !p.Changed.After(last):
			return row, ofEndpoint
		case j.isEndpointFault(p):
			ofEndpoint = append(ofEndpoint, p)
		default:
			row = append(row, p)
		}
	}
	return row, ofEndpoint
}

// isEndpointFault reports whether a failure is that of the endpoint: its workers fail in the
// same way on another card, or fail on others and have not worked on any since.
func (j gpuEvidence) isEndpointFault(f gpuPod) bool {
	var elsewhere, works time.Time
	for _, p := range j.pods {
		if p.Endpoint != f.Endpoint || shareGPU(p.Pod, f.Pod) {
			continue
		}
		works = job.Later(works, workedAt(p.Pod, j.now))
		if p.cause == "" {
			continue
		}
		if p.cause == f.cause && p.Changed.Sub(f.Changed).Abs() <= sameCauseInterval {
			return true
		}
		elsewhere = job.Later(elsewhere, p.Changed)
	}
	return elsewhere.After(works)
}

// fitsElsewhere reports whether a pod like this one could run without the cards that it had.
func (j gpuEvidence) fitsElsewhere(p gpuPod) bool {
	var others []placement.Device
	for _, c := range j.cards {
		if slices.Contains(p.Devices, c.UUID) || c.quarantine.Exists() {
			continue
		}
		d := c.Device
		d.Used = 0
		others = append(others, d)
	}
	r := placement.RequestOf(p.Spec)
	r.Driver = p.Driver
	_, ok := placement.Choose(r, others, nil)
	return ok
}

func shareGPU(a, b pod.Pod) bool {
	return slices.ContainsFunc(a.Devices, func(uuid string) bool { return slices.Contains(b.Devices, uuid) })
}

// failedOnGPU reports whether the pod ended and nobody had asked it to, while its
// autoscaler went on.
func failedOnGPU(p pod.Pod) bool {
	return p.Failed() && p.Drain.At.IsZero() && p.Change != vanished && p.Change != endedWithUs
}

// workedAt is when the pod last showed that its cards work, zero for never: it runs for
// long, or restarted itself after a job, or was drained after it was ready. Unlike provenAt,
// which judges starts, it counts a pod that still loads, and none that ran for long and
// then ended unasked (docs/adr/0065).
func workedAt(p pod.Pod, now time.Time) time.Time {
	switch {
	case p.Started.IsZero():
	case p.Status == pod.Running && now.Sub(p.Started) >= proven:
		return p.Started.Add(proven)
	case p.Status == pod.Running:
		return p.Refreshed
	case !p.Phases.Begun().IsZero() && p.Phases.Ready.IsZero():
	case (p.By == pod.Leave || p.By == pod.Remove) && !p.Drain.At.IsZero():
		return p.Changed
	}
	return time.Time{}
}

// quarantineLength is how long a quarantine lasts, by how many there were in a row.
func (c Config) quarantineLength(count int) time.Duration {
	return retry.Backoff{First: c.Quarantine, Max: max(c.Quarantine, maxQuarantine)}.Delay(count)
}

// probe is what is known of a worker that tries a GPU on probation. The zero value is
// that of a worker that was not heard of.
type probe struct {
	ready time.Time // since when it is
	jobs  []string  // that it was seen to hold
}

// next is the probe after another look at the worker.
func (p probe) next(w registry.Worker, now time.Time) probe {
	if p.ready.IsZero() {
		p.ready = now
	}
	for _, id := range w.Running {
		if !slices.Contains(p.jobs, id) {
			p.jobs = append(slices.Clip(p.jobs), id)
		}
	}
	return p
}

// passed reports whether the worker has ended a job, or none came for probeRest.
func (p probe) passed(w registry.Worker, now time.Time) bool {
	if p.ready.IsZero() {
		return false
	}
	ended := slices.ContainsFunc(p.jobs, func(id string) bool { return !slices.Contains(w.Running, id) })
	return ended || len(w.Running) == 0 && now.Sub(p.ready) >= probeRest
}
