package recorder

import (
	"maps"
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

func attemptOf(c queue.RecordChange) attempt { return attempt{c.Job.Endpoint, c.Job.ID, c.Job.Attempt} }

// loggedEvents says how many events the log has of each attempt that may get further
// ones. Of any other attempt the log has no event, or all.
type loggedEvents map[attempt]progress

// progress is how many events of an attempt are in the log.
type progress struct {
	events  int
	over    bool // the end is among them
	expires time.Time
}

// loggedEventsAt is what a checkpoint has. The entries of the log behind it must be added:
// those of the partition, and those of a version that did not name it.
func loggedEventsAt(c events.Checkpoint) loggedEvents {
	l := make(loggedEvents, len(c.Unfinished))
	for _, r := range c.Unfinished {
		l[attempt{r.Endpoint, r.Job, r.Attempt}] = progress{events: r.Events, over: r.Over, expires: r.Expires}
	}
	return l
}

// addEntry adds an entry of the log behind the checkpoint.
func (l loggedEvents) addEntry(entry events.Entry) {
	for _, e := range entry.Events {
		a := attempt{e.Endpoint, e.Job, e.Attempt}
		p := l[a]
		p.events = max(p.events, e.Run+1) // the queued event comes before that of run 1
		p.over = p.over || e.Status.Terminal()
		p.expires = job.Later(e.Expires, e.RetainUntil)
		l[a] = p
	}
}

// missing lists the events of a change that are not in the log. known is false if the
// log may have all of them nevertheless.
func (l loggedEvents) missing(c queue.RecordChange) (list []events.Event, known bool) {
	list = eventsOf(c)
	p, known := l[attemptOf(c)]
	switch {
	case p.over:
		return nil, true
	case known:
		return list[min(p.events, len(list)):], true
	}
	// This write began the attempt or ended it, unless it changed what had ended.
	return list, !c.Touch || !hasEnd(list)
}

// hasEnd reports whether the last of an attempt's events is its end.
func hasEnd(list []events.Event) bool { return list[len(list)-1].Status.Terminal() }

// addChange notes that all events of a change are in the log. The log may have more: after a
// failure changes are read again, and another recorder may have recorded later ones.
func (l loggedEvents) addChange(c queue.RecordChange) {
	a, list := attemptOf(c), eventsOf(c)
	if hasEnd(list) {
		delete(l, a)
		return
	}
	p := l[a]
	p.events, p.expires = max(p.events, len(list)), job.Later(p.expires, c.Job.Expires)
	l[a] = p
}

// forgetEnds forgets the attempts that are over: the session has passed their ends.
func (l loggedEvents) forgetEnds() {
	maps.DeleteFunc(l, func(_ attempt, p progress) bool { return p.over })
}

// expiredAge is how long after its expiry an attempt is remembered: its record is
// gone by then.
const expiredAge = 2 * time.Hour

// checkpoint lists what another recorder has to know, without what expired long ago,
// which is forgotten.
func (l loggedEvents) checkpoint(now time.Time) (list []events.Recorded) {
	for a, p := range l {
		if p.expires.Add(expiredAge).Before(now) {
			delete(l, a)
			continue
		}
		list = append(list, events.Recorded{Endpoint: a.endpoint, Job: a.id, Attempt: a.number, Events: p.events, Over: p.over, Expires: p.expires})
	}
	return list
}
