package main

import (
	"fmt"
	"slices"
	"time"
)

// history is all that is known about one job.
type history struct {
	id, endpoint string
	calls        []entry // requests of callers and their answers, by their beginning
	work         []entry // what workers did and were answered, by time
	writes       []write // of its records, by sequence
	gaps         map[int]bool
}

// violation is a promise that was broken.
type violation struct{ rule, job, text string }

func (v violation) String() string { return fmt.Sprintf("%s: job %s: %s", v.rule, v.job, v.text) }

const (
	// lingering is how long an operation without an answer may still take
	// effect: a call gives up within 5 s.
	lingering = int64(10 * time.Second)
	// followerLead is by how much a follower may show the observer a committed write
	// before the leader, which answers reads, has applied it: raft queues it on both.
	// That a writer was answered says more, and is taken as it is.
	followerLead = int64(100 * time.Millisecond)
	// grace is by how much what was decided before the ttl ended may be
	// written after it: the server itself is late by a quarter second.
	grace = int64(250 * time.Millisecond)

	millisecond = int64(time.Millisecond)
)

// buildHistories sorts ledger and observations by job.
func buildHistories(entries []entry, writes []write) map[string]*history {
	histories := map[string]*history{}
	of := func(id string) *history {
		if histories[id] == nil {
			histories[id] = &history{id: id, gaps: map[int]bool{}}
		}
		return histories[id]
	}
	for _, w := range writes {
		of(w.job).writes = append(of(w.job).writes, w)
		of(w.job).endpoint = w.endpoint // also of a job whose id no answer named
	}
	for _, e := range entries {
		if e.Job == "" {
			continue
		}
		s := of(e.Job)
		switch e.Kind {
		case submitOp, statusOp, cancelOp, retryOp, ttlOp:
			s.endpoint = e.Endpoint
			s.calls = append(s.calls, e)
		case began, intends, ended, refused, gaveBack, silent, spoke, emitted:
			s.work = append(s.work, e)
		case purgeOp, dying, died:
		}
	}
	for _, s := range histories {
		slices.SortStableFunc(s.calls, func(a, b entry) int { return int(a.Call - b.Call) })
		slices.SortStableFunc(s.work, func(a, b entry) int { return int(a.At - b.At) })
		s.findGaps()
	}
	return histories
}

// submission is how the job came to be; false if that was never known here.
func (s *history) submission() (entry, bool) {
	i := slices.IndexFunc(s.calls, func(e entry) bool { return e.Kind == submitOp })
	if i < 0 {
		return entry{}, false
	}
	return s.calls[i], true
}

// accepted reports whether an answer to a caller said that the job exists.
func (s *history) accepted() bool {
	return slices.ContainsFunc(s.calls, func(e entry) bool { return e.Answer == yes })
}

// did reports whether a worker wrote an entry of this kind about a run.
func (s *history) did(k kind, attempt, run int) (entry, bool) {
	i := slices.IndexFunc(s.work, func(e entry) bool { return e.Kind == k && e.Attempt == attempt && e.Run == run })
	if i < 0 {
		return entry{}, false
	}
	return s.work[i], true
}

// outcome is the first terminal write of an attempt.
func (s *history) outcome(attempt int) (write, bool) {
	i := slices.IndexFunc(s.writes, func(w write) bool { return w.attempt == attempt && terminal(w.Status) })
	if i < 0 {
		return write{}, false
	}
	return s.writes[i], true
}

func (s *history) attempts() int {
	most := 0
	for _, w := range s.writes {
		most = max(most, w.attempt)
	}
	return most
}

// end is a moment at which the job's ttl may be over, and the call that made
// it so. All in Unix nanoseconds.
type end struct {
	least, most int64 // the instant is in between
	from, until int64 // when the call began and could no longer take effect
	sure        bool
}

func (s *history) ends() []end {
	var ends []end
	made, known := s.submission()
	from, until := made.Call, settled(made)
	if len(s.writes) > 0 {
		from = s.writes[0].Submitted * millisecond
		until = from + millisecond
	}
	if !known {
		made.Answer = unknown
	}
	first := time.Hour.Nanoseconds()
	if made.Value > 0 {
		first = made.Value * millisecond
	}
	ends = append(ends, end{from + first, until + first, 0, until, true})
	for _, e := range s.calls {
		if e.Kind != ttlOp || e.Answer == no {
			continue
		}
		ends = append(ends, end{from + e.Value*millisecond, until + e.Value*millisecond, e.Call, settled(e), e.Answer == yes})
	}
	return ends
}

// settled is when an operation can no longer take effect.
func settled(e entry) int64 {
	if e.Answer == unknown {
		return e.At + lingering
	}
	return e.At
}

// mayBeOver reports whether the job's ttl, or its retention, may have ended it
// by t.
func (s *history) mayBeOver(t int64) bool {
	if last, ok := s.outcome(s.attempts()); ok && last.Retained*millisecond <= t {
		return true
	}
	return slices.ContainsFunc(s.ends(), func(e end) bool { return e.from <= t && e.least <= t })
}

// mustBeOver reports whether the job's ttl must have ended it well before t.
func (s *history) mustBeOver(t int64) bool {
	ends := s.ends()
	for _, e := range ends {
		superseded := slices.ContainsFunc(ends, func(later end) bool {
			return later.sure && later.from > e.until && later.until < t
		})
		if e.from <= t && !superseded && e.most+grace >= t {
			return false
		}
	}
	return true
}

// findGaps notes the attempts of which some write was never seen: the one
// after it names the sequence that it replaced.
func (s *history) findGaps() {
	last := map[int]uint64{}
	for _, w := range s.writes {
		if w.checked && w.expect > last[w.attempt] {
			s.gaps[w.attempt] = true
		}
		last[w.attempt] = w.seq
	}
}

// causes: a run follows another one of its attempt only after that one's
// worker died, fell silent or gave it back; and only the first two count as a
// lost worker. An outage of NATS is no cause.
func (v *evidence) causes(s *history) []violation {
	var found []violation
	for i, w := range s.writes {
		last := s.writeBefore(i)
		// What is the first write seen of its run has the losses of runs before.
		lostOne := w.Status == failed && s.began(w) && w.Run == last.Run && w.Lost > last.Lost
		if (w.Status != inProgress || !s.began(w) || w.Run < 2) && !lostOne {
			continue
		}
		before := w.Run - 1
		if lostOne {
			before = w.Run
		}
		if why := v.cause(s, w, before); why == "" || why == "gave back" && last.Run == before && w.Lost > last.Lost {
			found = append(found, violation{"no run without cause", s.id, fmt.Sprintf(
				"attempt %d: %s as run %d with %d lost at %s, but run %d %s", w.attempt, w.Status, w.Run, w.Lost, w.at.Format("05.000"), before, orNothing(why))})
		}
	}
	for _, e := range s.work {
		if first, _ := s.did(began, e.Attempt, e.Run); e.Kind == began && (first.At != e.At || first.Who != e.Who) {
			found = append(found, violation{"no run without cause", s.id, fmt.Sprintf("run %d of attempt %d began twice", e.Run, e.Attempt)})
		}
	}
	return found
}

func orNothing(why string) string {
	if why == "" {
		return "had neither died nor fallen silent nor given it back"
	}
	return why
}

// writeBefore is the write before the i-th, of the same attempt; the zero value if
// none was seen.
func (s *history) writeBefore(i int) write {
	for j := i - 1; j >= 0; j-- {
		if s.writes[j].attempt == s.writes[i].attempt {
			return s.writes[j]
		}
	}
	return write{}
}

// cause is why the run was over when w was written, "" if it was not.
func (v *evidence) cause(s *history, w write, run int) string {
	holder, returned := s.holder(w, run)
	first, handled := s.did(began, w.attempt, run)
	if handled {
		holder = first.Who
	}
	now := w.at.UnixNano()
	before := func(k kind) bool {
		e, ok := s.did(k, w.attempt, run)
		return ok && e.Call <= now
	}
	switch at, dead := v.deaths[holder]; {
	case returned:
		return "gave back"
	case holder == "" && v.anyDeath(now): // the pick-up was never seen: its worker died at once
		return "died"
	case dead && at <= now:
		return "died"
	case before(silent):
		return "fell silent"
	case before(gaveBack):
		return "gave back"
	case holder != "" && !handled && holder == w.Worker:
		return "was adopted" // its worker lost the answer and asked again; no handler ran
	}
	return ""
}

// holder is the worker of a run as its records name it, "" if they were not
// seen, and whether the run was given back before w.
func (s *history) holder(w write, run int) (name string, returned bool) {
	for _, o := range s.writes {
		if o.attempt == w.attempt && o.Run == run && o.seq < w.seq {
			name, returned = o.Worker, o.Status == inQueue
		}
	}
	return name, returned
}

func (v *evidence) anyDeath(before int64) bool {
	for _, at := range v.deaths {
		if at < before {
			return true
		}
	}
	return false
}
