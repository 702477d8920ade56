package queue

import (
	"time"

	"flightline/shared/job"
)

// verdict is what a delivery of a queue message leads to.
type verdict int

const (
	// begin: nobody has touched the attempt.
	begin verdict = iota
	// resume: the record says IN_QUEUE (given back, or its ttl was changed).
	resume
	// adopt: this process wrote the record, lost the answer, and runs nothing.
	adopt
	// takeOver: the holder is lost.
	takeOver
	// handAgain: nobody is known to have received the job.
	handAgain
	// giveUp: the holder is lost, and it was one too many.
	giveUp
	// tooLate: the run that held the job is past its deadline.
	tooLate
	// drop: the attempt is decided, or its record says that it expired; the
	// message only needs to go.
	drop
	// stray: a replaced message of an attempt that is held under another one.
	stray
	// requeue: a ttl change did not come to publish the longer message.
	requeue
	// hold: leave it alone for a while.
	hold
	// ask: the holder is lost unless it answers.
	ask
)

// delivery is what a verdict depends on.
type delivery struct {
	seq     uint64        // of the queue message
	expires time.Time     // of the job, as the message tells it
	holder  string        // this taker
	running bool          // this taker runs the job, or is picking it up
	now     time.Time     // server time
	service time.Duration // how long JetStream has served this process, or one that was asked, without a gap
	asked   bool          // the holder was asked
	alive   bool          // and has answered
	lease   time.Duration
	maxLost int
}

const (
	// forgotten is how long after its deadline a run is ended by whoever sees it;
	// until then the holder and the due consumer are at it.
	forgotten = 2 * time.Second
	// replacing is how long a ttl change may take between its two writes before
	// a worker makes the second.
	replacing = 10 * time.Second
	// astrayMost is how many runs of an attempt may get lost on their way to a
	// worker. More are those of workers that die of the job before they can say
	// that they have it.
	astrayMost = 2
)

// judge decides on a delivery by the record that it meets (nil: none). The
// number of deliveries decides nothing: it grows by naks and falls after a
// crash of the server (jetstream.md F11).
func judge(r *record, d delivery) verdict {
	switch {
	case d.running:
		return hold
	case r == nil:
		if !d.now.Before(d.expires) {
			return hold // only the server's ttl removes it
		}
		return begin
	case r.Status.Terminal():
		return drop
	case !d.now.Before(r.Expires.Add(forgotten)):
		return drop // a ttl made shorter than the message's own age
	case !d.now.Before(r.Expires):
		return hold
	case r.Status == job.InQueue:
		switch {
		case !r.unfinished(d.expires):
			return resume
		case d.now.Before(r.changed.Add(replacing)):
			return hold
		}
		return requeue
	case r.queueSeq != d.seq && r.requeued:
		return resume // given back by a holder without a queue message
	case r.queueSeq != d.seq:
		return stray
	case r.holder == d.holder:
		return adopt
	case r.Overdue(d.now.Add(-forgotten)):
		return tooLate
	case r.Overdue(d.now):
		return hold
	}
	return judgeSilence(r, d)
}

// judgeSilence decides on the job of another holder, which may have fallen
// silent.
func judgeSilence(r *record, d delivery) verdict {
	switch {
	case r.confirm > 0 && r.astray < astrayMost:
		if d.now.Before(r.Started.Add(r.confirm)) || d.service < min(d.lease, r.confirm) {
			return hold // the sign may still come, or could not
		}
		return handAgain
	case !d.asked && !plantNoAsk:
		return ask
	case d.alive:
		return hold
	case d.service < d.lease && !plantNoGuard:
		return hold
	case r.Lost+1 >= d.maxLost:
		return giveUp
	}
	return takeOver
}

// patience is how long a message that is left alone waits for its next
// delivery. A living holder's heartbeat starts that time again.
func patience(d delivery) time.Duration {
	if d.alive {
		return d.lease
	}
	return max(0, d.lease-d.service) + time.Second
}
