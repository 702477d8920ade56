package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// payloads: a caller gets what the run that completed the job delivered, whole.
func (v *evidence) payloads(s *story) []violation {
	for _, e := range s.calls {
		if e.Answer != yes || e.Status != completed {
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
		if s := v.stories[id]; s != nil {
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
		for _, s := range v.stories {
			for _, o := range s.writes {
				at := o.at.UnixNano()
				if s.endpoint == endpoint && o.Status == cancelled && s.began(o) && w.from <= at && at <= w.until {
					got++
				}
			}
		}
		if w.sure && got != w.removed || got < w.removed {
			found = append(found, violation{"purge", "-", fmt.Sprintf("%d removed, as callers were told; %d jobs became CANCELLED", w.removed, got)})
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
