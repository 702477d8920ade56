package recorder

import (
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

// maxKnown bounds the attempts whose events are remembered, twice.
const maxKnown = 50_000

// attempt names one attempt of a job.
type attempt struct {
	endpoint string
	id       job.ID
	number   int
}

func attemptOf(f queue.RecordChange) attempt { return attempt{f.Job.Endpoint, f.Job.ID, f.Job.Attempt} }

// known remembers how many events of unfinished attempts were appended, so
// that those need not be refused by the server again. It may forget.
type known struct{ young, old map[attempt]int }

func newKnown() *known { return &known{young: map[attempt]int{}} }

// missing lists the events of a fact that are not known to be in the log.
func (k *known) missing(f queue.RecordChange) []events.Event {
	list := eventsOf(f)
	a := attemptOf(f)
	n, ok := k.young[a]
	if !ok {
		n = k.old[a]
	}
	return list[min(n, len(list)):]
}

// add notes that all events of a fact are in the log.
func (k *known) add(f queue.RecordChange) {
	a := attemptOf(f)
	if f.Job.Status.Terminal() {
		delete(k.young, a)
		delete(k.old, a)
		return
	}
	if len(k.young) >= maxKnown {
		k.young, k.old = map[attempt]int{}, k.young
	}
	k.young[a] = f.Job.Run + 1
}
