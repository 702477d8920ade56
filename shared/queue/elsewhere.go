package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// A node that is cut off from the others keeps its connections. A worker behind
// it has to leave before its leases end on the other side of the cut:
//
//	maxSilence + silenceJitter + probeTimeout < MinLease / 2
//
// The last heartbeat before the cut is up to a third of a lease old, so the least
// lease ends at 2/3 of MinLease after it at the earliest; whoever takes over then
// asks the worker first (holder.go), which has answered from its new node.
const (
	// maxSilence is for how long nothing may show that this process's node hears a
	// majority of the others. An election takes longer, so some of those make a
	// process leave a good node; that costs it its open pulls.
	maxSilence = 3 * time.Second
	// silenceJitter spreads the processes that leave a node.
	silenceJitter = 300 * time.Millisecond
	// maxSilenceBackoff bounds the patience with the next nodes, which doubles
	// until one of them serves: an election must not send processes around.
	maxSilenceBackoff = 24 * time.Second
	// probeTimeout bounds one probe, and so the pause between two looks.
	probeTimeout = tryWithin
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
	if plantStay {
		a.patience = maxSilenceBackoff
	}
}

// moved notes that another node is tried from now on.
func (a *attendance) moved(now time.Time) {
	a.heard, a.patience = now, min(2*a.patience, maxSilenceBackoff)
}

// stranded reports whether this process is to look for another node: its own
// is there, but has shown for too long that it hears no majority, as on the
// minority's side of a partition. Where there is no other node it is never.
func (a *attendance) stranded(now time.Time, nodes int, status nats.Status) bool {
	return now.Sub(a.heard) >= a.patience && nodes > 1 && status == nats.CONNECTED
}

// attend takes the result of a probe, and connects to the next node of the
// cluster if this one is cut off from the others; the connection is not lost, so
// nobody else would. Whoever waits for an answer from this one would wait in vain.
func (q *Queue) attend(ctx context.Context, a *attendance, silent time.Duration, err error) {
	now := time.Now()
	switch {
	case err == nil:
		a.served(now.Add(-silent))
	case !errors.Is(err, ErrUnavailable):
		return
	case q.nc.Status() != nats.CONNECTED:
		a.heard = now // it looks for a node anyway
	}
	if !a.stranded(now, len(q.nc.Servers()), q.nc.Status()) {
		return
	}
	q.log.WarnContext(ctx, "jetstream does not answer through this node, trying another", "url", q.nc.ConnectedUrlRedacted())
	if q.nc.ForceReconnect() == nil {
		a.moved(now)
	}
}
