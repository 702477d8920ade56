package main

import "fmt"

// causes: a run follows another one of its attempt only after that one's
// worker died, fell silent or gave it back; and only the first two count as a
// lost worker. An outage of NATS is no cause.
func (v *evidence) causes(s *story) []violation {
	var found []violation
	for i, w := range s.writes {
		lostOne := w.Status == failed && s.began(w) && w.Lost > s.lostBefore(i)
		if (w.Status != inProgress || !s.began(w) || w.Run < 2) && !lostOne {
			continue
		}
		before := w.Run - 1
		if lostOne {
			before = w.Run
		}
		if why := v.cause(s, w, before); why == "" || why == "gave back" && w.Lost > s.lostBefore(i) {
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

// lostBefore is the number of lost workers in the write before the i-th, of
// the same attempt.
func (s *story) lostBefore(i int) int {
	for j := i - 1; j >= 0; j-- {
		if s.writes[j].attempt == s.writes[i].attempt {
			return s.writes[j].Lost
		}
	}
	return 0
}

// cause is why the run was over when w was written, "" if it was not.
func (v *evidence) cause(s *story, w write, run int) string {
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
func (s *story) holder(w write, run int) (name string, returned bool) {
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
