package main

import (
	"math/rand/v2"
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

// Any entry and any write can be missing: a caller whose submission is not
// answered never names the job, and the observer loses messages. The audit
// finds violations in such a ledger; it does not panic.
func TestTheAuditTakesALedgerWithAnyPartMissing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 2000 {
		var entries []entry
		for range r.IntN(6) {
			at := r.Int64N(1000) * millisecond
			entries = append(entries, entry{
				Kind:   kind(one(string(submitOp), string(statusOp), string(cancelOp), string(retryOp), string(ttlOp), string(began), string(intends), string(ended), string(gaveBack), string(silent), string(died))),
				Answer: answer(one(string(yes), string(no), string(unknown), string(gone))),
				Who:    one("w", "v", ""), Job: "j", Attempt: 1 + r.IntN(2), Run: 1 + r.IntN(3), Call: at, At: at + millisecond,
				Status: one("", inQueue, inProgress, completed, failed, cancelled), Value: r.Int64N(100),
			})
		}
		var writes []write
		for seq := range uint64(r.IntN(5)) {
			at := time.UnixMilli(r.Int64N(1000))
			head := recordHead{Status: one(inQueue, inProgress, completed, failed, timedOut, cancelled), Run: r.IntN(3), Lost: r.IntN(2), Worker: one("w", "v", "")}
			writes = append(writes, write{seq: seq + 1, expect: r.Uint64N(seq + 1), checked: true, job: "j", attempt: 1 + r.IntN(2), at: at, seen: at, recordHead: head})
		}
		v := &evidence{histories: buildHistories(entries, writes), entries: entries, deaths: deathsIn(entries)}
		for _, s := range v.histories {
			v.judge(s)
		}
	}
}
