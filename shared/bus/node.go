package bus

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/mutation"
)

// A node that is cut off from the others keeps its connections. A worker behind
// it has to leave before its leases end on the other side of the cut:
//
//	maxSilence + silenceJitter + probeTimeout < MinLease / 2
//
// The last heartbeat before the cut is up to a third of a lease old, so the least
// lease ends at 2/3 of MinLease after it at the earliest; the worker that takes over then
// asks the worker first (shared/queue/remote.go), which has answered from its new node.
const (
	// maxSilence is for how long nothing may show that this process's node reaches a
	// majority of the others. An election takes longer, so some of those make a
	// process leave a good node; that costs it its open pulls.
	maxSilence = 3 * time.Second
	// silenceJitter spreads the processes that leave a node.
	silenceJitter = 300 * time.Millisecond
	// maxSilenceBackoff bounds the patience with the next nodes, which doubles
	// until one of them serves: an election must not send processes around.
	maxSilenceBackoff = 24 * time.Second
	// probeTimeout bounds one probe, and so the pause between two looks.
	probeTimeout = RequestTimeout
)

// attendance is what a process knows of its node.
type attendance struct {
	heard    time.Time     // when the node was last known to hear a majority
	patience time.Duration // with its silence
}

func newAttendance(now time.Time) *attendance {
	a := new(attendance)
	a.served(now)
	return a
}

// served notes that the node heard a majority at that time.
func (a *attendance) served(at time.Time) {
	if at.After(a.heard) {
		a.heard = at
	}
	a.patience = maxSilence + rand.N(silenceJitter) //nolint:gosec // jitter
	if mutation.Stay {
		a.patience = maxSilenceBackoff
	}
}

// moved notes that another node is tried from now on.
func (a *attendance) moved(now time.Time) {
	a.heard, a.patience = now, min(2*a.patience, maxSilenceBackoff)
}

// stranded reports whether this process is to look for another node: its own
// is there, but has shown for too long that it reaches no majority, as on the
// minority's side of a partition. Where there is no other node it is never.
func (a *attendance) stranded(now time.Time, nodes int, status nats.Status) bool {
	return now.Sub(a.heard) >= a.patience && nodes > 1 && status == nats.CONNECTED
}

// attend takes the result of a probe, and connects to the next node of the
// cluster if this one is cut off from the others; the connection is not lost, so
// no other party would. A caller that waits for this node would wait in vain.
func (c *Client) attend(ctx context.Context, a *attendance, silent time.Duration, err error) {
	now := time.Now()
	switch {
	case err == nil:
		a.served(now.Add(-silent))
	case !errors.Is(err, ErrUnavailable):
		return
	case c.nc.Status() != nats.CONNECTED:
		a.heard = now // it looks for a node anyway
	}
	if !a.stranded(now, len(c.nc.Servers()), c.nc.Status()) {
		return
	}
	c.log.WarnContext(ctx, "jetstream does not answer through this node, trying another", "url", c.nc.ConnectedUrlRedacted())
	if c.nc.ForceReconnect() == nil {
		a.moved(now)
	}
}

// peerSilence is for how long a replica may be silent that counts as there:
// replicas are heard of every second.
const peerSilence = 4 * time.Second

// errNoQuorum means that a leader answers which could not write anything.
var errNoQuorum = errors.New("the leader reaches too few of its replicas")

// cluster is what a stream's leader reports of its replicas; the zero value is a
// stream without any.
type cluster struct {
	Name     string    `json:"name"` // "" of a server that is alone
	Replicas []replica `json:"replicas"`
}

// replica is a server of the stream that does not lead it.
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

// quorum reports whether the leader reaches a majority. A leader that was cut off goes
// on to answer, for longer than a lease may be: to take its word for service
// would take the outage for a lost worker.
func (c cluster) quorum() bool { return c.silence() <= peerSilence }
