package queue

import (
	"context"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
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
func serverTag(nc *nats.Conn) string {
	const length = 8
	id := nc.ConnectedServerId()
	return id[max(0, len(id)-length):]
}

// sameServer reports whether the sequences of the server start tag still name the
// same messages. For what another process was given (far), the nodes of a
// cluster count as one server: they lose what a majority has only if all of them
// lose power at once (docs/operating.md).
func (q *Queue) sameServer(tag string, far bool) bool {
	return tag != "" && (tag == serverTag(q.nc) || far && q.nc.ConnectedClusterName() != "")
}

// named reports whether the lease's ack subject names the queue message of its
// attempt.
func (l *Lease) named(ctx context.Context) bool {
	if l.consumer.q.sameServer(l.given, l.far) {
		return true
	}
	msg, err := l.consumer.q.read.message(ctx, l.consumer.at, l.Job.ID)
	return err == nil && msg.Attempt == l.Job.Attempt && msg.QueueSeq == l.rec.QueueSeq
}

// dropMessage removes the queue message of an attempt that is over, wherever it
// is in the queue: a longer ttl may have replaced it, and a restart moved it.
func (q *Queue) dropMessage(ctx context.Context, at record.Location, id job.ID, attempt int) {
	ctx, cancel := afterDecision(ctx)
	defer cancel()
	if msg, err := q.read.message(ctx, at, id); err == nil && msg.Attempt == attempt {
		q.deleteMessage(ctx, at, msg.QueueSeq)
	}
}

// afterDecision gives the removal of a queue message its own time: the write that decided the
// job may have taken all that there was, and until a worker comes nothing else removes it.
func afterDecision(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bus.RequestTimeout)
}

// dropDelivered removes a queue message that was delivered to this process.
func (q *Queue) dropDelivered(ctx context.Context, at record.Location, msg *record.Record) {
	if q.sameServer(msg.QueueServer, false) {
		q.deleteMessage(ctx, at, msg.QueueSeq)
	}
}

// deleteMessage removes a queue message that a record has decided, by its sequence,
// never by its subject, where a retry may wait. It may fail: the next delivery
// finds the record and removes the message.
func (q *Queue) deleteMessage(ctx context.Context, at record.Location, seq uint64) {
	q.Reach(BeforeDelete)
	if seq != 0 {
		ctx, cancel := afterDecision(ctx)
		defer cancel()
		q.bus.Delete(ctx, streams.Jobs(at.Endpoint), seq)
	}
}
