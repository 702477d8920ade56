package queue

import (
	"errors"
	"math"
	"slices"
	"time"
)

// peerSilence is for how long a replica may be silent that counts as there:
// replicas are heard of every second.
const peerSilence = 4 * time.Second

// errNoQuorum means that a leader answers which could not write anything.
var errNoQuorum = errors.New("the leader hears too few of its replicas")

// cluster is what a stream's leader tells of its replicas; the zero value is a
// stream without any.
type cluster struct {
	Name     string    `json:"name"` // "" of a server that is alone
	Replicas []replica `json:"replicas"`
}

// replica is one that is not the leader.
type replica struct {
	Offline bool `json:"offline"`
	// Active is the time since it was heard of.
	Active time.Duration `json:"active"`
}

// silence is the time since the leader heard enough of its replicas for a
// majority, itself included. Those that are offline are not heard.
func (c cluster) silence() time.Duration {
	var heard []time.Duration
	for _, r := range c.Replicas {
		if !r.Offline {
			heard = append(heard, r.Active)
		}
	}
	slices.Sort(heard)
	needed := (1 + len(c.Replicas)) / 2 // beside the leader
	switch {
	case needed == 0:
		return 0
	case len(heard) < needed:
		return math.MaxInt64
	}
	return heard[needed-1]
}

// quorum reports whether the leader hears a majority. One that was cut off goes
// on to answer, for longer than a lease may be: to take its word for service
// would take the outage for a lost worker.
func (c cluster) quorum() bool { return c.silence() <= peerSilence }
