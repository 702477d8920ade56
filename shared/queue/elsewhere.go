package queue

import (
	"context"

	"github.com/nats-io/nats.go"
)

// strandedProbes is how many probes in a row go without a good answer before
// another node is tried: some seconds, which is longer than an election takes.
const strandedProbes = 4

// stranded reports whether this process is to look for another node: its own
// is there, but JetStream has not served through it for some probes, as on the
// minority's side of a partition. Where there is no other node it is never.
func stranded(unanswered, nodes int, status nats.Status) bool {
	return unanswered >= strandedProbes && nodes > 1 && status == nats.CONNECTED
}

// elsewhere connects to the next node of the cluster if this one is cut off
// from the others; the connection is not lost, so nobody else would. Whoever
// waits for an answer from this one would wait in vain.
func (q *Queue) elsewhere(ctx context.Context, unanswered int) (moved bool) {
	if !stranded(unanswered, len(q.nc.Servers()), q.nc.Status()) {
		return false
	}
	q.log.WarnContext(ctx, "jetstream does not answer through this node, trying another", "url", q.nc.ConnectedUrlRedacted())
	return q.nc.ForceReconnect() == nil
}
