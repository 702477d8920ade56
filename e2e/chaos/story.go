package main

import (
	"fmt"
	"slices"
	"time"
)

// story is all that is known about one job.
type story struct {
	id, endpoint string
	calls        []entry // what callers asked and were told, by their beginning
	work         []entry // what workers did and were told, by time
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
	// grace is by how much what was decided before the ttl ended may be
	// written after it: the server itself is late by a quarter second.
	grace = int64(250 * time.Millisecond)

	millisecond = int64(time.Millisecond)
)

// tell sorts ledger and observations by job.
func tell(entries []entry, writes []write) map[string]*story {
	stories := map[string]*story{}
	of := func(id string) *story {
		if stories[id] == nil {
			stories[id] = &story{id: id, gaps: map[int]bool{}}
		}
		return stories[id]
	}
	for _, w := range writes {
		of(w.job).writes = append(of(w.job).writes, w)
		of(w.job).endpoint = w.endpoint // also of one whose id no caller was told
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
	for _, s := range stories {
		slices.SortStableFunc(s.calls, func(a, b entry) int { return int(a.Call - b.Call) })
		slices.SortStableFunc(s.work, func(a, b entry) int { return int(a.At - b.At) })
		s.findGaps()
	}
	return stories
}

// submission is how the job came to be; false if that was never known here.
func (s *story) submission() (entry, bool) {
	i := slices.IndexFunc(s.calls, func(e entry) bool { return e.Kind == submitOp })
	if i < 0 {
		return entry{}, false
	}
	return s.calls[i], true
}

// accepted reports whether a caller was told that the job exists.
func (s *story) accepted() bool {
	return slices.ContainsFunc(s.calls, func(e entry) bool { return e.Answer == yes })
}

// did reports whether a worker wrote an entry of this kind about a run.
func (s *story) did(k kind, attempt, run int) (entry, bool) {
	i := slices.IndexFunc(s.work, func(e entry) bool { return e.Kind == k && e.Attempt == attempt && e.Run == run })
	if i < 0 {
		return entry{}, false
	}
	return s.work[i], true
}

// outcome is the first terminal write of an attempt.
func (s *story) outcome(attempt int) (write, bool) {
	i := slices.IndexFunc(s.writes, func(w write) bool { return w.attempt == attempt && terminal(w.Status) })
	if i < 0 {
		return write{}, false
	}
	return s.writes[i], true
}

func (s *story) attempts() int {
	most := 0
	for _, w := range s.writes {
		most = max(most, w.attempt)
	}
	return most
}

// end is a moment at which the job's ttl may be over, and the call that made
// it so. All in Unix nanoseconds.
type end struct {
	least, most int64 // the instant lies in between
	from, until int64 // when the call began and could no longer take effect
	sure        bool
}

func (s *story) ends() []end {
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
func (s *story) mayBeOver(t int64) bool {
	if last, ok := s.outcome(s.attempts()); ok && last.Retained*millisecond <= t {
		return true
	}
	return slices.ContainsFunc(s.ends(), func(e end) bool { return e.from <= t && e.least <= t })
}

// mustBeOver reports whether the job's ttl must have ended it well before t.
func (s *story) mustBeOver(t int64) bool {
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
func (s *story) findGaps() {
	last := map[int]uint64{}
	for _, w := range s.writes {
		if w.checked && w.expect > last[w.attempt] {
			s.gaps[w.attempt] = true
		}
		last[w.attempt] = w.seq
	}
}
