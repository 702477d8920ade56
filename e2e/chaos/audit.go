package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// evidence is what the audit goes by.
type evidence struct {
	histories map[string]*history
	entries   []entry
	deaths    map[string]int64 // of workers
	chunks    map[string][][]byte
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
	v := &evidence{histories: buildHistories(entries, writes), entries: entries, deaths: deathsIn(entries), chunks: chunks, recorded: recorded}
	r := newReport(s, v, c)
	for _, w := range stuck {
		r.add(violation{"stuck", w.job, fmt.Sprintf("attempt %d is %s and nothing will end it", w.attempt, w.Status)})
	}
	for _, id := range v.ids() {
		r.add(v.judge(v.histories[id])...)
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

// judge holds one job against each promise.
func (v *evidence) judge(s *history) []violation {
	var found []violation
	for _, check := range []func(*history) []violation{
		v.accounted, v.visible, v.outcomes, v.inTime, v.causes, v.replaced, v.payloads, v.history,
	} {
		found = append(found, check(s)...)
	}
	return found
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
	for id := range v.histories {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// accounted: an accepted job has ended, or its ttl is over.
func (v *evidence) accounted(s *history) []violation {
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
func (v *evidence) visible(s *history) []violation {
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

// outcomes: an attempt has at most one, for every party.
func (v *evidence) outcomes(s *history) []violation {
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
			found = append(found, violation{rule, s.id, fmt.Sprintf("run %d of attempt %d was answered %s, its record says %q by run %d", e.Run, e.Attempt, e.Status, first.Status, first.Run)})
		}
	}
	final, _ := s.outcome(s.attempts())
	for _, e := range s.calls {
		if e.Kind == cancelOp && e.Answer == yes && final.Status != cancelled {
			found = append(found, violation{rule, s.id, fmt.Sprintf("a caller was answered CANCELLED, its record says %q", final.Status)})
		}
	}
	return found
}

// inTime: nothing is decided or begun after the ttl.
func (v *evidence) inTime(s *history) []violation {
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
func (s *history) began(w write) bool {
	i := slices.IndexFunc(s.writes, func(o write) bool { return o.attempt == w.attempt && o.Status == w.Status && o.Run == w.Run })
	return s.writes[i].seq == w.seq
}

// replaced: each write knew the one that it replaced.
func (v *evidence) replaced(s *history) []violation {
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

// payloads: a caller gets what the run that completed the job delivered, whole.
func (v *evidence) payloads(s *history) []violation {
	for _, e := range s.calls {
		if e.Answer != yes || e.Status != completed || e.Kind == retryOp { // a retry is answered without an output
			continue
		}
		w, _ := s.outcome(s.attempts())
		meant, ok := s.did(intends, w.attempt, w.Run)
		if !ok || meant.Hash != e.Hash {
			return []violation{{"payload", s.id, fmt.Sprintf("run %d of attempt %d delivered %q, a caller got %q", w.Run, w.attempt, meant.Hash, e.Hash)}}
		}
	}
	return nil
}

// streamed: the chunks of a run are there once each, in order, and none that
// was taken is missing.
func (v *evidence) streamed() []violation {
	var found []violation
	for subject, chunks := range v.chunks {
		t := strings.Split(subject, ".")
		id, by := t[3], t[4]+"/"+t[5]
		for i, data := range chunks {
			var c struct {
				N  int    `json:"n"`
				By string `json:"by"`
			}
			if err := json.Unmarshal(data, &c); err != nil || c.N != i || c.By != by {
				found = append(found, violation{"chunks", id, fmt.Sprintf("chunk %d of run %s is %s", i, by, data)})
			}
		}
		if s := v.histories[id]; s != nil {
			for _, e := range s.work {
				if e.Kind == emitted && fmt.Sprintf("%d/%d", e.Attempt, e.Run) == by && e.Value >= int64(len(chunks)) {
					found = append(found, violation{"chunks", id, fmt.Sprintf("chunk %d of run %s was taken and is missing", e.Value, by)})
				}
			}
		}
	}
	return found
}

// purges: what purges say they removed is what became CANCELLED meanwhile, on
// an endpoint where nobody cancels. Purges at the same time are taken together.
func (v *evidence) purges(endpoint string) []violation {
	var found []violation
	for _, w := range windows(v.entries, endpoint) {
		got := int64(0)
		for _, s := range v.histories {
			for _, o := range s.writes {
				at := o.at.UnixNano()
				if s.endpoint == endpoint && o.Status == cancelled && s.began(o) && w.from <= at && at <= w.until {
					got++
				}
			}
		}
		if w.sure && got != w.removed || got < w.removed {
			found = append(found, violation{"purge", "-", fmt.Sprintf("%d removed, by the answers to callers; %d jobs became CANCELLED", w.removed, got)})
		}
	}
	return found
}

// window is a time in which purges were under way.
type window struct {
	from, until, removed int64
	sure                 bool // all were answered
}

func windows(entries []entry, endpoint string) []window {
	var all []window
	purges := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.Kind != purgeOp || e.Endpoint != endpoint })
	slices.SortFunc(purges, func(a, b entry) int { return int(a.Call - b.Call) })
	for _, e := range purges {
		if n := len(all) - 1; n < 0 || all[n].until < e.Call {
			all = append(all, window{from: e.Call, sure: true})
		}
		w := &all[len(all)-1]
		w.until, w.sure = max(w.until, settled(e)), w.sure && e.Answer == yes
		if e.Answer == yes {
			w.removed += e.Value
		}
	}
	return all
}
