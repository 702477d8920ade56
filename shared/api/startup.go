package api

import (
	"time"

	"flightline/shared/pod"
)

// Startup is how the last start of a pod went. An instant is absent if its phase was left
// out, or has not begun.
type Startup struct {
	// Phase is the latest that began: "pulling", "starting", "loading" or "ready".
	Phase      pod.Phase `json:"phase"`
	PullingAt  time.Time `json:"pullingAt,omitzero"`
	StartingAt time.Time `json:"startingAt,omitzero"`
	LoadingAt  time.Time `json:"loadingAt,omitzero"`
	ReadyAt    time.Time `json:"readyAt,omitzero"`
}

// StartupOf is the last start of a pod, also of a pod that has ended; nil if it was not
// begun, or if nothing here starts the pod.
func StartupOf(p pod.Pod) *Startup {
	phase, _ := p.Phases.Current()
	if phase == "" || p.Phases.Life != p.Starts {
		return nil
	}
	at := func(of pod.Phase) time.Time { return p.Phases.At(of).UTC().Truncate(time.Millisecond) }
	return &Startup{Phase: phase, PullingAt: at(pod.Pulling), StartingAt: at(pod.Starting), LoadingAt: at(pod.Loading), ReadyAt: at(pod.Ready)}
}

// Sleep is that a worker sleeps, or wakes.
type Sleep struct {
	// State is "sleeping" or "waking".
	State pod.Phase `json:"state"`
	Since time.Time `json:"since"`
}

// SleepOf is the sleep of a pod; nil if its worker is awake, or the pod does not run.
func SleepOf(p pod.Pod) *Sleep {
	state, since := p.Sleep.State()
	if state == "" || p.Status != pod.Running {
		return nil
	}
	return &Sleep{State: state, Since: since.UTC().Truncate(time.Millisecond)}
}

// Phases are the startup as the pod package has it.
func (s Startup) Phases() pod.Phases {
	return pod.Phases{Pulling: s.PullingAt, Starting: s.StartingAt, Loading: s.LoadingAt, Ready: s.ReadyAt}
}

// StartingWorker is a worker that is not ready yet. While it wakes its phase is "waking".
type StartingWorker struct {
	WorkerID string    `json:"workerId"`
	Phase    pod.Phase `json:"phase"`
	Since    string    `json:"since"`
	// UsualMs is how long the phase usually lasts, in milliseconds: the median of the
	// endpoint's last 9 starts, or of the last wakes of its workers. 0 and absent if none is known.
	UsualMs int64 `json:"usualMs,omitempty"`
	// MissingModels are those of modelCache that its machine did not have when it was
	// chosen.
	MissingModels []string `json:"missingModels,omitempty"`
}
