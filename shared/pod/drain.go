package pod

import "time"

// Drain asks the worker of a pod to take no more jobs, to finish those that it
// runs, and to leave. The zero value asks for nothing. A worker that speaks NATS
// reads it here; one that speaks HTTP is just given no more jobs.
type Drain struct {
	// At is when it was asked, in server time.
	At time.Time `json:"at,omitzero"`
	// Why tells people what for.
	Why string `json:"why,omitempty"`
}

// Drains reports whether a worker that began at began is to drain. What was
// asked of an earlier life of it is past, unless a driver runs the pod: that
// starts no worker that is to drain.
func (p Pod) Drains(began time.Time) bool {
	return !p.Drain.At.IsZero() && (p.Driver != "" || !p.Drain.At.Before(began))
}
