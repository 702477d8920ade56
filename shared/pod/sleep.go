package pod

import "time"

// WakeTimeout is how long a worker may take to be awake after it was asked to wake. Then
// it is ended, and another one is started.
const WakeTimeout = 2 * time.Minute

// Sleep asks the worker of a pod to sleep, or to wake again: it takes no jobs while it
// sleeps. The zero value asks for nothing: the worker is awake (docs/adr/0069).
type Sleep struct {
	// At is when it was asked to sleep, in server time.
	At time.Time `json:"at,omitzero"`
	// Asleep is when it was seen to sleep; zero before.
	Asleep time.Time `json:"asleep,omitzero"`
	// Wake is when it was asked to wake; zero before.
	Wake time.Time `json:"wake,omitzero"`
	// GPUFreed is what it gives back of each of its GPUs while it sleeps, in hundredths of
	// the card: the claims are smaller before Asleep is set, and whole again before the
	// worker learns of Wake.
	GPUFreed int `json:"gpuFreed,omitempty"`
	// Took is how long its last wake took, 0 before the first, and Awoke when that was over.
	Took  time.Duration `json:"took,omitempty"`
	Awoke time.Time     `json:"awoke,omitzero"`
}

// The states of Sleep.
const (
	// Sleeping is that the worker is asleep, or was asked to sleep.
	Sleeping Phase = "sleeping"
	// Waking is that it was asked to wake.
	Waking Phase = "waking"
)

// State is Sleeping or Waking, and since when; "" for a worker that is awake.
func (s Sleep) State() (state Phase, since time.Time) {
	switch {
	case s.At.IsZero():
		return "", time.Time{}
	case s.Wake.IsZero():
		return Sleeping, s.At
	}
	return Waking, s.Wake
}

// Sleeps reports whether the worker is to sleep.
func (s Sleep) Sleeps() bool { return !s.At.IsZero() && s.Wake.IsZero() }

// Wakes reports whether the worker is to wake.
func (s Sleep) Wakes() bool { return !s.Wake.IsZero() }

// Awake is s once the worker was seen awake at at.
func (s Sleep) Awake(at time.Time) Sleep {
	return Sleep{Took: max(0, at.Sub(s.Wake)), Awoke: at.UTC()}
}

// UsualWake is how long a worker of the endpoint usually takes to wake: the median of the
// last wakes of its workers. 0 means that none is known.
func UsualWake(pods []Pod, endpointID string) time.Duration {
	var took []time.Duration
	for _, p := range pods {
		if p.Endpoint == endpointID && p.Sleep.Took > 0 {
			took = append(took, p.Sleep.Took)
		}
	}
	return median(took)
}
