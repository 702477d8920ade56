package pod

import (
	"slices"
	"time"
)

// Phase is a step of a pod's start. The zero value is the time before the first: its
// machine has not begun, or nothing here starts the pod.
type Phase string

// The phases, in order.
const (
	// Pulling is that the engine fetches the image. A start whose image is there, and a
	// process, have no such phase.
	Pulling Phase = "pulling"
	// Starting is that the container or process is being started.
	Starting Phase = "starting"
	// Loading is that its program runs, and its worker has not been heard of yet.
	Loading Phase = "loading"
	// Ready is that its worker takes jobs. A pod that works for no endpoint is ready once
	// its program runs.
	Ready Phase = "ready"
)

// AllPhases are the phases in order.
var AllPhases = []Phase{Pulling, Starting, Loading, Ready}

// usualOf is how many of the last starts say what is usual.
const usualOf = 9

// Phases says when each phase of one start began, in server time. A phase that was left
// out, or has not begun, is zero.
type Phases struct {
	// Life is Pod.Starts of the pod that was started.
	Life     int       `json:"life,omitempty"`
	Pulling  time.Time `json:"pulling,omitzero"`
	Starting time.Time `json:"starting,omitzero"`
	Loading  time.Time `json:"loading,omitzero"`
	Ready    time.Time `json:"ready,omitzero"`
}

// At is when the phase began; the zero time if it has not.
func (p Phases) At(of Phase) time.Time {
	if at := p.field(of); at != nil {
		return *at
	}
	return time.Time{}
}

func (p *Phases) field(of Phase) *time.Time {
	switch of {
	case Pulling:
		return &p.Pulling
	case Starting:
		return &p.Starting
	case Loading:
		return &p.Loading
	case Ready:
		return &p.Ready
	case Sleeping, Waking: // of no start
	}
	return nil
}

// Current is the last phase that has begun, and when; "" before the first.
func (p Phases) Current() (Phase, time.Time) {
	for _, phase := range slices.Backward(AllPhases) {
		if at := p.At(phase); !at.IsZero() {
			return phase, at
		}
	}
	return "", time.Time{}
}

// Begun is when the first phase began; the zero time before.
func (p Phases) Begun() time.Time {
	for _, phase := range AllPhases {
		if at := p.At(phase); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// Took is how long the phase lasted; 0 if it was left out, or goes on.
func (p Phases) Took(of Phase) time.Duration {
	from := p.At(of)
	if from.IsZero() {
		return 0
	}
	for _, next := range AllPhases[slices.Index(AllPhases, of)+1:] {
		if to := p.At(next); !to.IsZero() {
			return to.Sub(from)
		}
	}
	return 0
}

// Enter is p once a phase of the start life has begun at at. The phase that goes on
// changes nothing. Another start, or an earlier phase, begins again with this phase
// alone. No phase begins before the one ahead of it, and none without a name.
func (p Phases) Enter(phase Phase, life int, at time.Time) Phases {
	current, since := p.Current()
	rank := slices.Index(AllPhases, phase)
	switch {
	case rank < 0, life == p.Life && phase == current:
		return p
	case life != p.Life || rank < slices.Index(AllPhases, current):
		p = Phases{Life: life}
	case at.Before(since):
		at = since
	}
	*p.field(phase) = at.UTC()
	return p
}

// Phase is the phase of a pod that runs, and since when; "" if its machine has not begun
// its last start, if nothing here starts it, or if it does not run.
func (p Pod) Phase() (Phase, time.Time) {
	if p.Status != Running || p.Phases.Life != p.Starts {
		return "", time.Time{}
	}
	return p.Phases.Current()
}

// Usual is how long a phase of the endpoint's workers usually lasts: the median of
// their last starts, 9 at most. 0 means that none is known.
func Usual(pods []Pod, endpointID string, phase Phase) time.Duration {
	var known []Phases
	for _, p := range pods {
		if p.Endpoint == endpointID && p.Phases.Took(phase) > 0 {
			known = append(known, p.Phases)
		}
	}
	slices.SortFunc(known, func(a, b Phases) int { return b.At(phase).Compare(a.At(phase)) })
	lengths := make([]time.Duration, 0, usualOf)
	for _, p := range known[:min(usualOf, len(known))] {
		lengths = append(lengths, p.Took(phase))
	}
	return median(lengths)
}

// median sorts the lengths; 0 if there are none.
func median(lengths []time.Duration) time.Duration {
	if len(lengths) == 0 {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)/2]
}
