package recorder

import (
	"time"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

// attempt names one attempt of a job.
type attempt struct {
	endpoint string
	id       job.ID
	number   int
}

func attemptOf(f queue.RecordChange) attempt { return attempt{f.Job.Endpoint, f.Job.ID, f.Job.Attempt} }

// told is what the log has of attempts that may get further events. Of an attempt
// that it does not name the log has nothing, or all.
type told map[attempt]progress

// progress is how many events of an attempt are in the log.
type progress struct {
	events  int
	over    bool // the end is among them
	expires time.Time
}

// toldUntil is what a checkpoint says, and the entries of the log behind it: those of
// the partition, and those of a version that did not name it.
func toldUntil(c events.Checkpoint) told {
	t := make(told, len(c.Unfinished))
	for _, r := range c.Unfinished {
		t[attempt{r.Endpoint, r.Job, r.Attempt}] = progress{events: r.Events, over: r.Over, expires: r.Expires}
	}
	return t
}

// read adds an entry behind the checkpoint.
func (t told) read(entry events.Entry) {
	for _, e := range entry.Events {
		a := attempt{e.Endpoint, e.Job, e.Attempt}
		p := t[a]
		p.events = max(p.events, e.Run+1) // the queued event comes before that of run 1
		p.over = p.over || e.Status.Terminal()
		p.expires = later(e.Expires, e.RetainUntil)
		t[a] = p
	}
}

// missing lists the events of a fact that are not in the log. known: what the log has
// of the attempt is known, or it can have nothing yet.
func (t told) missing(f queue.RecordChange) (list []events.Event, known bool) {
	list = eventsOf(f)
	p, known := t[attemptOf(f)]
	switch {
	case p.over:
		return nil, true
	case known:
		return list[min(p.events, len(list)):], true
	}
	// This write began the attempt or ended it, unless it changed what had ended.
	return list, !f.Touch || !over(list)
}

// over reports whether the last of an attempt's events is its end.
func over(list []events.Event) bool { return list[len(list)-1].Status.Terminal() }

// add notes that all events of a fact are in the log.
func (t told) add(f queue.RecordChange) {
	list := eventsOf(f)
	if over(list) {
		delete(t, attemptOf(f))
		return
	}
	t[attemptOf(f)] = progress{events: len(list), expires: f.Job.Expires}
}

// forgetEnds forgets the attempts that are over: the session has passed their ends.
func (t told) forgetEnds() {
	for a, p := range t {
		if p.over {
			delete(t, a)
		}
	}
}

// expiredFor is how long after its expiry an attempt is remembered: its record is
// gone by then.
const expiredFor = 2 * time.Hour

// checkpoint lists what another recorder has to know, without what expired long ago,
// which is forgotten.
func (t told) checkpoint(now time.Time) (list []events.Recorded) {
	for a, p := range t {
		if p.expires.Add(expiredFor).Before(now) {
			delete(t, a)
			continue
		}
		list = append(list, events.Recorded{Endpoint: a.endpoint, Job: a.id, Attempt: a.number, Events: p.events, Over: p.over, Expires: p.expires})
	}
	return list
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
