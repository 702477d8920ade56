package main

import (
	"testing"
	"time"
)

// The observer may miss a write, here that of the second run's beginning.
func TestCausesOfAFailureBehindAWriteThatWasNotSeen(t *testing.T) {
	t.Parallel()
	at := time.Unix(100, 0)
	written := func(seq uint64, status string, run, lost int) write {
		return write{seq: seq, attempt: 1, at: at, recordHead: recordHead{Status: status, Run: run, Lost: lost, Worker: "w"}}
	}
	work := []entry{{Kind: began, Who: "w", Attempt: 1, Run: 1}, {Kind: began, Who: "w", Attempt: 1, Run: 2}, {Kind: gaveBack, Who: "w", Attempt: 1, Run: 2}}
	v := &evidence{deaths: map[string]int64{}}
	for name, test := range map[string]struct {
		writes []write
		want   int
	}{
		"run 2 fails by itself":       {[]write{written(1, inProgress, 1, 0), written(3, failed, 2, 1)}, 0},
		"run 2 is given back":         {[]write{written(1, inProgress, 1, 0), written(4, inProgress, 3, 1)}, 0},
		"run 1 fails without a cause": {[]write{written(1, inProgress, 1, 0), written(3, failed, 1, 1)}, 1},
		"run 2 fails without a cause": {[]write{written(3, inProgress, 2, 1), written(4, failed, 2, 2)}, 2},
	} {
		if got := v.causes(&history{id: "j", work: work, writes: test.writes}); len(got) != test.want {
			t.Errorf("%s: got %v, want %d violations", name, got, test.want)
		}
	}
}

// Of the run of this job the observer saw its cancellation alone: pick-up and
// return to the queue were before it, as the worker's own entries say.
func TestHistoryOfARunOfWhichOnlyTheEndWasSeen(t *testing.T) {
	t.Parallel()
	at := func(ms int64) int64 { return time.Unix(100, 0).UnixNano() + ms*millisecond }
	seen := time.Unix(100, 0).Add(686 * time.Millisecond)
	s := &history{
		id:    "j",
		calls: []entry{{Kind: submitOp, Answer: yes, Call: at(0), At: at(2)}},
		work: []entry{
			{Kind: began, Who: "w", Attempt: 1, Run: 1, At: at(300)},
			{Kind: gaveBack, Who: "w", Attempt: 1, Run: 1, Call: at(652), At: at(653)},
		},
		writes: []write{{seq: 9, expect: 8, checked: true, attempt: 1, at: seen, seen: seen.Add(time.Millisecond), recordHead: recordHead{Status: cancelled, Run: 1}}},
		gaps:   map[int]bool{},
	}
	s.findGaps()
	if found := (&evidence{}).history(s); len(found) > 0 {
		t.Error(found)
	}
}
