package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/stats"
)

// ended is a job that ended on a worker; it failed if it has an error.
func ended(id, worker, failure string, at time.Time) Event {
	e := runs("ep", 0, failure)[2]
	e.Job, e.Worker, e.At, e.Finished, e.RetainUntil = job.ID(id), worker, at, at, at.Add(24*time.Hour)
	return e
}

// The jobs of a worker or a cause are found at the same cost, and page by page, however
// many others there are. Messages are counted, not time.
func TestTheEndsOfAWorkerAndACauseCostTheSameAmongMany(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l, c := open(t, b), newClock(time.Now())
	f := newFold(l, Counting{Now: c.now})
	var mine []string
	more := func(n int) {
		for i := range 5 {
			id := fmt.Sprintf("mine-%d", len(mine))
			list := []Event{ended(id, "mine", "no file 3", c.now())}
			for j := range n {
				list = append(list, ended(fmt.Sprintf("x-%d-%d-%d", len(mine), i, j), "others", "KeyError: 'x'", c.now()))
			}
			mine = append([]string{id}, mine...)
			if err := l.Append(t.Context(), list...); err != nil {
				t.Fatal(err)
			}
		}
		if err := foldAll(t, f, c); err != nil {
			t.Fatal(err)
		}
	}
	cost := func(w Ends) (n int) {
		before := l.nc.Stats()
		page, _, err := l.EndsBefore(t.Context(), "ep", w)
		after := l.nc.Stats()
		if err != nil || len(page) != w.Most {
			t.Fatalf("got %d and %v, want %d", len(page), err, w.Most)
		}
		return int(after.OutMsgs - before.OutMsgs + after.InMsgs - before.InMsgs)
	}
	kinds := map[string]Ends{"worker": {Worker: "mine"}, "cause": {Fingerprint: stats.Fingerprint("no file 4")}}
	few := map[string]int{}
	more(0)
	for name, w := range kinds {
		w.Most = 5
		few[name] = cost(w)
	}
	more(2000)
	for name, w := range kinds {
		w.Most = 5
		if got := cost(w); got > few[name]+10 {
			t.Errorf("%s: got %d messages among many, want as among few, %d", name, got, few[name])
		}
		for _, most := range []int{1, 3, 100} {
			var got []string
			w.Most, w.Before = most, 0
			for pages := 0; ; pages++ {
				page, next, err := l.EndsBefore(t.Context(), "ep", w)
				if err != nil || pages > 20 {
					t.Fatal(err, pages)
				}
				for _, e := range page {
					got = append(got, string(e.Job))
				}
				if w.Before = next; next == 0 {
					break
				}
			}
			if !slices.Equal(got, mine) {
				t.Errorf("%s, %d at a time: got %v, want %v", name, most, got, mine)
			}
		}
	}
	if page, next, err := l.EndsBefore(t.Context(), "ep", Ends{Worker: "none", Past: Past{Most: 10}}); err != nil || len(page) != 0 || next != 0 {
		t.Errorf("of no worker: got %v, %d, %v", page, next, err)
	}
}
