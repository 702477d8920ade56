package queue

import (
	"context"

	"flightline/shared/job"
	"flightline/streams"
)

// A sequence, and an ack subject, which has one, name a queue message for as
// long as the server runs that gave them. A server that starts again after a
// power loss may have lost its last messages, and gives their sequences to
// others; the record of a lost one may be there all the same. So a record says
// which start of which server its sequence is of. While that serves, an ack is
// one message without an answer; afterwards the queue message is looked up by
// its job first.

// serverTag names the present start of the connected server in a record.
func (q *Queue) serverTag() string {
	const length = 8
	id := q.nc.ConnectedServerId()
	return id[max(0, len(id)-length):]
}

// current reports whether the sequences of the server start tag still name the
// same messages. For what another process was given (far), the nodes of a
// cluster count as one server: they lose what a majority has only if all of them
// lose power at once (docs/operating.md).
func (q *Queue) current(tag string, far bool) bool {
	return tag != "" && (tag == q.serverTag() || far && q.nc.ConnectedClusterName() != "")
}

// named reports whether the lease's ack subject names the queue message of its
// attempt.
func (l *Lease) named(ctx context.Context) bool {
	if l.t.q.current(l.given, l.far) {
		return true
	}
	msg, err := l.t.q.readMessage(ctx, l.t.at, l.Job.ID)
	return err == nil && msg.Attempt == l.Job.Attempt && msg.queueSeq == l.rec.queueSeq
}

// dropMessage removes the queue message of an attempt that is over, wherever it
// is in the queue: a longer ttl may have replaced it, and a restart moved it.
func (q *Queue) dropMessage(ctx context.Context, at place, id job.ID, attempt int) {
	if msg, err := q.readMessage(ctx, at, id); err == nil && msg.Attempt == attempt {
		q.deleteSeq(ctx, streams.Jobs(at.endpoint), msg.queueSeq)
	}
}

// dropDelivered removes a queue message that was delivered to this process.
func (q *Queue) dropDelivered(ctx context.Context, at place, msg *record) {
	if q.current(msg.queueServer, false) {
		q.deleteSeq(ctx, streams.Jobs(at.endpoint), msg.queueSeq)
	}
}
