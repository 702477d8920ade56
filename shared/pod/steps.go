package pod

import (
	"fmt"
	"slices"
	"time"
)

// Step is something that happened to a pod.
type Step struct {
	// Name is the same for the same step of any pod.
	Name string
	// At is when it happened, in server time.
	At time.Time
	// Text says it to people. It may hold secrets.
	Text string
	// Failed is that the pod ended and nobody had asked it to.
	Failed bool
}

// Steps are the steps that the pod's record has the time of, in order: the phases of its
// last start, its last sleep, its drain, and its end.
func (p Pod) Steps() []Step {
	var steps []Step
	add := func(name string, at time.Time, text string) {
		if !at.IsZero() {
			steps = append(steps, Step{Name: name, At: at, Text: text})
		}
	}
	for _, phase := range AllPhases {
		add(string(phase), p.Phases.At(phase), p.describePhase(phase))
	}
	add("sleep", p.Sleep.At, "asked to sleep")
	add("asleep", p.Sleep.Asleep, "asleep")
	add("wake", p.Sleep.Wake, "asked to wake")
	add("awake", p.Sleep.Awoke, fmt.Sprintf("awake after %s", p.Sleep.Took.Round(time.Millisecond)))
	add("drain", p.Drain.At, "draining: "+p.Drain.Why)
	if p.Status != Running {
		add(string(p.Status), p.Changed, "ended: "+p.Change)
		steps[len(steps)-1].Failed = p.Failed()
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.At.Compare(b.At) })
	return steps
}

func (p Pod) describePhase(phase Phase) string {
	switch phase {
	case Pulling:
		return "pulling the image " + p.Spec.Image
	case Loading:
		return "loading: its program runs"
	case Ready:
		return fmt.Sprintf("ready %s after its start began", p.Phases.Ready.Sub(p.Phases.Begun()).Round(time.Millisecond))
	case Starting, Sleeping, Waking:
	}
	return string(phase)
}
