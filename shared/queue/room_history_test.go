package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// told is what a history holds, slice by slice, as "a:JOBS/BYTES b:… | …".
func (h *history) told() string {
	var all []string
	for _, s := range h.slices {
		var one []string
		for _, key := range slices.Sorted(maps.Keys(s.of)) {
			if l := s.of[key]; l != (load{}) {
				one = append(one, fmt.Sprintf("%s:%d/%d", key, l.jobs, l.bytes))
			}
		}
		all = append(all, strings.Join(one, " "))
	}
	return strings.Join(all, " | ")
}

// A queue that holds fewer jobs than were accepted has lost the oldest.
func TestWhatIsMeasuredIsAttributedToTheLatest(t *testing.T) {
	start := time.Now()
	at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	for name, test := range map[string]struct {
		jobs  int64
		first time.Time
		want  string
		lost  string
	}{
		"all wait":                        {10, start, "a:4/40 b:2/200 | a:4/8", ""},
		"more wait, of other processes":   {99, start, "a:4/40 b:2/200 | a:4/8", ""},
		"one of six ended":                {9, start, "a:3/33 b:2/167 | a:4/8", "a:1/7 b:0/33"},
		"half of the oldest ended":        {7, start, "a:2/20 b:1/100 | a:4/8", "a:2/20 b:1/100"},
		"the oldest slice ended":          {4, start, "a:4/8", "a:4/40 b:2/200"},
		"some of the latest ended too":    {1, start, "a:1/2", "a:7/46 b:2/200"},
		"all ended":                       {0, start, "", "a:8/48 b:2/200"},
		"what waits is younger":           {99, at(1.5), "a:4/8", "a:4/40 b:2/200"},
		"what waits is younger than all":  {99, at(9), "", "a:8/48 b:2/200"},
		"what waits is of the same slice": {99, at(0.5), "a:4/40 b:2/200 | a:4/8", ""},
	} {
		h := history{slices: []slice{{from: at(0), of: map[string]load{}}}, width: time.Second}
		for range 4 {
			h.add("a", load{10, 1}, at(0))
		}
		h.add("b", load{100, 1}, at(0.5))
		h.add("b", load{100, 1}, at(0.9))
		for range 4 {
			h.add("a", load{2, 1}, at(2))
		}
		lost := history{slices: []slice{{of: map[string]load{}}}}
		h.trim(test.jobs, test.first, func(key string, l load) { lost.slices[0].of[key] = lost.slices[0].of[key].plus(l) })
		if got := h.told(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if got := lost.told(); got != test.lost {
			t.Errorf("%s: lost %q, want %q", name, got, test.lost)
		}
	}
}

// However long jobs wait, a history has few slices, and forgets nothing.
func TestAHistoryIsBounded(t *testing.T) {
	var h history
	start := time.Now()
	const seconds = 100_000
	for n := range seconds {
		h.add("a", load{2, 1}, start.Add(time.Duration(n)*time.Second))
	}
	var sum load
	for _, s := range h.slices {
		sum = sum.plus(s.of["a"])
	}
	if sum != (load{2 * seconds, seconds}) || len(h.slices) > maxSlices || len(h.slices) < maxSlices/2 {
		t.Errorf("got %v in %d slices, want all in at most %d", sum, len(h.slices), maxSlices)
	}
	h.trim(1000, start, func(string, load) {})
	if h.width > 1024*time.Second {
		t.Errorf("got slices of %v, want them narrow again", h.width)
	}
	if got := h.slices[0].from; got.Before(start.Add((seconds - 2000 - 2*seconds/maxSlices) * time.Second)) {
		t.Errorf("the oldest is of second %v", got.Sub(start))
	}
}
