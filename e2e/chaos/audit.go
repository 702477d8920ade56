package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// evidence is what the audit goes by.
type evidence struct {
	stories map[string]*story
	entries []entry
	deaths  map[string]int64 // of workers
	chunks  map[string][][]byte
	// recorded is nil where nobody recorded.
	recorded *recordOf
}

// audit gathers the evidence, ends the site's processes that could still add to
// it, and holds it against the promises.
func (s *site) audit(ctx context.Context, c *client, stuck []write) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	chunks, err := persist(ctx, func() (map[string][][]byte, error) { return s.chunks(ctx) })
	if err != nil {
		return nil, err
	}
	recorded, err := s.recorded(ctx)
	if err != nil {
		return nil, err
	}
	writes, strange := s.observer.history()
	s.halt()
	entries, err := readLedgers(s.dir)
	if err != nil {
		return nil, err
	}
	v := &evidence{stories: tell(entries, writes), entries: entries, deaths: deathsIn(entries), chunks: chunks, recorded: recorded}
	r := newReport(s, v, c)
	for _, w := range stuck {
		r.add(violation{"stuck", w.job, fmt.Sprintf("attempt %d is %s and nothing will end it", w.attempt, w.Status)})
	}
	for _, id := range v.ids() {
		for _, check := range []func(*story) []violation{
			v.accounted, v.visible, v.outcomes, v.inTime, v.causes, v.replaced, v.payloads, v.history,
		} {
			r.add(check(v.stories[id])...)
		}
	}
	r.add(v.streamed()...)
	r.add(v.told(s.endpointIDs())...)
	if len(s.endpoints) > 1 {
		r.add(v.purges(s.endpoints[1].ID)...)
	}
	for _, text := range append(s.faults, strange...) {
		r.add(violation{"surprise", "-", text})
	}
	return r, nil
}

func deathsIn(entries []entry) map[string]int64 {
	deaths := map[string]int64{}
	for _, e := range entries {
		if e.Kind == died {
			deaths[e.Who] = e.At
		}
	}
	return deaths
}

func (v *evidence) ids() []string {
	var ids []string
	for id := range v.stories {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// accounted: an accepted job has ended, or its ttl is over.
func (v *evidence) accounted(s *story) []violation {
	if !s.accepted() {
		return nil
	}
	last := s.calls[len(s.calls)-1]
	switch {
	case last.Kind != statusOp || last.Answer == unknown:
		return []violation{{"accounted for", s.id, "its status could not be read"}}
	case last.Answer == gone, terminal(last.Status): // visible judges a 404
		return nil
	}
	return []violation{{"accounted for", s.id, "it still is " + last.Status + " when all is quiet"}}
}

// visible: a job is there until its ttl is over, and not any more then.
func (v *evidence) visible(s *story) []violation {
	var found []violation
	if !s.accepted() {
		return nil
	}
	for _, e := range s.calls {
		switch {
		case e.Answer == gone && e.Kind != submitOp && !s.mayBeOver(e.At):
			found = append(found, violation{"accounted for", s.id, fmt.Sprintf("%s says 404, but neither its ttl nor its retention is over", e.Kind)})
		case (e.Answer == yes || e.Answer == no) && s.mustBeOver(e.Call):
			found = append(found, violation{"after the ttl", s.id, fmt.Sprintf("%s is answered %q (%s)", e.Kind, e.Answer, e.Status)})
		}
	}
	return found
}

// outcomes: an attempt has at most one, whoever is told.
func (v *evidence) outcomes(s *story) []violation {
	const rule = "one outcome per attempt"
	var found []violation
	for _, w := range s.writes {
		first, ok := s.outcome(w.attempt)
		if ok && w.seq > first.seq && (w.Status != first.Status || w.Run != first.Run) {
			found = append(found, violation{rule, s.id, fmt.Sprintf("attempt %d was %s by run %d, then %s by run %d", w.attempt, first.Status, first.Run, w.Status, w.Run)})
		}
	}
	for _, e := range s.work {
		if e.Kind != ended {
			continue
		}
		first, ok := s.outcome(e.Attempt)
		if !ok || first.Status != e.Status || first.Run != e.Run {
			found = append(found, violation{rule, s.id, fmt.Sprintf("run %d of attempt %d was told %s, its record says %q by run %d", e.Run, e.Attempt, e.Status, first.Status, first.Run)})
		}
	}
	final, _ := s.outcome(s.attempts())
	for _, e := range s.calls {
		if e.Kind == cancelOp && e.Answer == yes && final.Status != cancelled {
			found = append(found, violation{rule, s.id, fmt.Sprintf("a caller was told CANCELLED, its record says %q", final.Status)})
		}
	}
	return found
}

// inTime: nothing is decided or begun after the ttl.
func (v *evidence) inTime(s *story) []violation {
	var found []violation
	for _, w := range s.writes {
		late := max(w.Started, w.Finished) - w.Expires
		if first, ok := s.outcome(w.attempt); ok && first.seq < w.seq {
			continue // only touched
		}
		if late*millisecond > grace && (w.Status == inProgress || terminal(w.Status)) && s.began(w) {
			found = append(found, violation{"after the ttl", s.id, fmt.Sprintf("%s %d ms late", w.Status, late)})
		}
	}
	return found
}

// began reports whether w is the write that brought its status, not a touch.
func (s *story) began(w write) bool {
	i := slices.IndexFunc(s.writes, func(o write) bool { return o.attempt == w.attempt && o.Status == w.Status && o.Run == w.Run })
	return s.writes[i].seq == w.seq
}

// replaced: each write knew the one that it replaced.
func (v *evidence) replaced(s *story) []violation {
	last := map[int]uint64{}
	var found []violation
	for _, w := range s.writes {
		if w.checked && w.expect < last[w.attempt] {
			found = append(found, violation{"compare-and-set", s.id, fmt.Sprintf("write %d expected %d, but replaced %d", w.seq, w.expect, last[w.attempt])})
		}
		last[w.attempt] = w.seq
	}
	return found
}
