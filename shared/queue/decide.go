package queue

import (
	"time"

	"flightline/shared/job"
	"flightline/shared/mutation"
	"flightline/shared/record"
)

// decision is what a delivery of a queue message leads to.
type decision int

const (
	// decideBegin: the attempt has no record yet.
	decideBegin decision = iota
	// decideResume: the record says IN_QUEUE (given back, or its ttl was changed).
	decideResume
	// decideAdopt: this process wrote the record, lost the answer, and runs nothing.
	decideAdopt
	// decideTakeOver: the holder is lost.
	decideTakeOver
	// decideHandAgain: no worker is known to have received the job.
	decideHandAgain
	// decideGiveUp: the holder is lost, and it was the last that the endpoint allows.
	decideGiveUp
	// decideTimeOut: the run is past its deadline.
	decideTimeOut
	// decideDrop: the attempt has ended or expired; only the message remains.
	decideDrop
	// decideDetach: the message was replaced, and the run is held by the one before.
	decideDetach
	// decideRequeue: a ttl change was cut off before it published the longer message.
	decideRequeue
	// decideHold: leave the message in the queue for a while.
	decideHold
	// decideAsk: the holder is lost unless it answers a question.
	decideAsk
)

// deliveryFacts are what a decision depends on besides the record.
type deliveryFacts struct {
	seq       uint64        // of the queue message
	expires   time.Time     // of the job, in the message
	holder    string        // this consumer
	running   bool          // this consumer runs the job, or claims it now
	now       time.Time     // server time
	available time.Duration // how long JetStream has served this process, or another process, without a gap
	asked     bool          // the holder was asked
	alive     bool          // and has answered
	lease     time.Duration
	maxLost   int
}

const (
	// deadlineGrace is how long after its deadline any process ends a run. Until then
	// the holder and the consumer of timers do.
	deadlineGrace = 2 * time.Second
	// requeueTimeout is how long a ttl change may take between its two writes before
	// a worker makes the second.
	requeueTimeout = 10 * time.Second
	// maxUndelivered is how many runs of an attempt may get lost on their way to a
	// worker. More than that are of workers that crash before they can report.
	maxUndelivered = 2
)

// decide decides on a delivery by the record of its attempt (nil: none). The
// number of deliveries decides nothing: it grows by naks and falls after a
// crash of the server (docs/design/jetstream.md#f11).
func decide(r *record.Record, d deliveryFacts) decision {
	switch {
	case d.running:
		return decideHold
	case r == nil:
		if !d.now.Before(d.expires) {
			return decideHold // only the server's ttl removes it
		}
		return decideBegin
	case r.Status.Terminal():
		return decideDrop
	case !d.now.Before(r.Expires.Add(deadlineGrace)):
		return decideDrop // a ttl made shorter than the message's own age
	case !d.now.Before(r.Expires):
		return decideHold
	case r.Status == job.InQueue:
		switch {
		case !requeueUnfinished(r, d.expires):
			return decideResume
		case d.now.Before(r.Changed.Add(requeueTimeout)):
			return decideHold
		}
		return decideRequeue
	case r.QueueSeq != d.seq && r.Requeued:
		return decideResume // given back by a holder without a queue message
	case r.QueueSeq != d.seq:
		return decideDetach
	case r.Holder == d.holder:
		return decideAdopt
	case r.Overdue(d.now.Add(-deadlineGrace)):
		return decideTimeOut
	case r.Overdue(d.now):
		return decideHold
	}
	return decideSilence(r, d)
}

// decideSilence decides on the job of another holder, which may have fallen
// silent.
func decideSilence(r *record.Record, d deliveryFacts) decision {
	switch {
	case mayBeHandedAgain(r):
		if d.now.Before(r.Started.Add(r.AckTimeout)) || d.available < min(d.lease, r.AckTimeout) {
			return decideHold // the sign may still come, or could not
		}
		return decideHandAgain
	case !d.asked && !mutation.NoAsk:
		return decideAsk
	case d.alive:
		return decideHold
	case d.available < d.lease && !mutation.NoGuard:
		return decideHold
	case r.Lost+1 >= d.maxLost:
		return decideGiveUp
	}
	return decideTakeOver
}

// mayBeHandedAgain reports whether a run that goes on may be handed out again without a lost
// worker: none is known to have received it.
func mayBeHandedAgain(r *record.Record) bool {
	return r.AckTimeout > 0 && r.Undelivered < maxUndelivered
}

// redeliveryDelay is how long a message that is left alone waits for its next
// delivery. A living holder's heartbeat starts that time again.
func redeliveryDelay(d deliveryFacts) time.Duration {
	if d.alive {
		return d.lease
	}
	return max(0, d.lease-d.available) + time.Second
}
