package system

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"flightline/e2e/chaos/ledger"
)

var start = time.Unix(1_800_000_000, 0)

// at is an instant of a test, in seconds.
func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// ran is a run of job "a" from one second to another; 0 means that it did not
// finish.
func ran(worker string, began, finished float64) run {
	r := run{job: "a", worker: worker, by: worker + "/1", began: at(began)}
	if finished > 0 {
		r.finished = at(finished)
	}
	return r
}

func rules(found []violation) (names []string) {
	for _, v := range found {
		names = append(names, v.Rule)
	}
	return names
}

func TestJudge(t *testing.T) {
	done := job{n: 1, id: "a", accepted: at(1), ended: at(20), status: completed, by: "w/1"}
	with := func(change func(*job)) job {
		j := done
		change(&j)
		return j
	}
	runs := func(all ...run) job { return with(func(j *job) { j.runs = all }) }
	second := func(finished float64) job {
		return with(func(j *job) { j.by, j.runs = "v/1", []run{ran("w", 1, finished), ran("v", 15, 16)} })
	}
	tests := map[string]struct {
		job  job
		harm []incident
		want []string
	}{
		"one run":                             {runs(ran("w", 2, 3)), nil, nil},
		"not accepted, not there":             {job{n: 1, status: "not answered"}, nil, nil},
		"accepted, and waits":                 {with(func(j *job) { j.status, j.ended = "IN_QUEUE", time.Time{} }), nil, []string{ruleLost}},
		"accepted, and 404 for a while":       {with(func(j *job) { j.hidden, j.runs = at(2), []run{ran("w", 2, 3)} }), nil, []string{ruleHidden}},
		"accepted, and FAILED":                {with(func(j *job) { j.status = "FAILED" }), nil, []string{ruleLost}},
		"COMPLETED by nobody":                 {runs(), nil, []string{ruleOutcome}},
		"COMPLETED by a run that did not end": {runs(ran("w", 2, 0)), nil, []string{ruleOutcome}},
		"two ids under a key":                 {with(func(j *job) { j.others, j.runs = []string{"b"}, []run{ran("w", 2, 3)} }), nil, []string{ruleKey}},
		"a run after the end":                 {runs(ran("w", 2, 3), ran("v", 21, 22)), []incident{{killed, "w", at(5), time.Time{}}}, []string{ruleAfterEnd}},
		"a second run without cause":          {second(0), nil, []string{ruleDoubled}},
		"after a kill":                        {second(0), []incident{{killed, "w", at(5), time.Time{}}}, nil},
		"after a kill of another":             {second(0), []incident{{killed, "v", at(5), time.Time{}}}, []string{ruleDoubled}},
		"after a kill that came later":        {second(0), []incident{{killed, "w", at(15.5), time.Time{}}}, []string{ruleDoubled}},
		"given back":                          {second(0), []incident{{asked, "w", at(5), time.Time{}}}, nil},
		"asked to stop, but it had finished":  {second(3), []incident{{asked, "w", at(5), time.Time{}}}, []string{ruleDoubled}},
		"frozen for a lease":                  {second(14), []incident{{frozen, "w", at(3), at(13)}}, nil},
		"frozen, and not thawed":              {second(0), []incident{{frozen, "w", at(3), time.Time{}}}, nil},
		"frozen for half a lease":             {second(14), []incident{{frozen, "w", at(3), at(8)}}, []string{ruleDoubled}},
		"frozen long before":                  {second(14), []incident{{frozen, "w", at(-20), at(0)}}, []string{ruleDoubled}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rules((rule{lease: minLease}).judge(&tt.job, tt.harm)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLate(t *testing.T) {
	r := rule{end: 5 * time.Second}
	j := &job{accepted: at(1), ended: at(10)}
	for name, tt := range map[string]struct {
		calm  time.Time
		still stalls
		want  int
	}{
		"no fault":                       {time.Time{}, nil, 1},
		"a fault that was long over":     {at(4), nil, 1},
		"a fault until lately":           {at(6), nil, 0},
		"a fault after it":               {at(20), nil, 0},
		"the machine stood still":        {time.Time{}, stalls{{at(2), at(4)}, {at(5), at(8)}}, 0},
		"the machine hardly stood still": {time.Time{}, stalls{{at(2), at(4)}}, 1},
		"it stood still at other times":  {time.Time{}, stalls{{at(-5), at(2)}, {at(9), at(20)}}, 1},
	} {
		if got := r.late(j, tt.calm, tt.still); len(got) != tt.want {
			t.Errorf("%s: got %v, want %d", name, got, tt.want)
		}
	}
}

func TestPassedOver(t *testing.T) {
	r := rule{overtaken: 5 * time.Second}
	begun := func(accepted, began float64) *job {
		return &job{accepted: at(accepted), runs: []run{ran("w", began, 0)}}
	}
	for name, tt := range map[string]struct {
		jobs  []*job
		still stalls
		want  int
	}{
		"in turn":                             {[]*job{begun(1, 11), begun(3, 12), begun(5, 13)}, nil, 0},
		"all wait for long":                   {[]*job{begun(1, 51), begun(3, 51), begun(5, 50)}, nil, 0},
		"one waits while later ones begin":    {[]*job{begun(1, 12), begun(3, 4), begun(5, 6)}, nil, 1},
		"two wait":                            {[]*job{begun(1, 12), begun(2, 12), begun(5, 6)}, nil, 2},
		"accepted in the same second":         {[]*job{begun(1, 12), begun(1.5, 2)}, nil, 0},
		"one that was not accepted is no one": {[]*job{begun(1, 12), {runs: []run{ran("w", 2, 0)}}}, nil, 0},
		"one waits, and the machine does":     {[]*job{begun(1, 12), begun(3, 4), begun(5, 6)}, stalls{{at(5), at(9)}}, 0},
	} {
		if got := r.passedOver(tt.jobs, tt.still); len(got) != tt.want {
			t.Errorf("%s: got %v, want %d", name, got, tt.want)
		}
	}
}

func TestABookForgetsWhatEndedAndNotices(t *testing.T) {
	b := newBook(rule{lease: minLease})
	for n := 1; n <= 3; n++ {
		b.update(n, func(j *job) {
			j.id, j.accepted, j.ended, j.status, j.by = fmt.Sprint(n), at(1), at(float64(10*n)), completed, "w/1"
			j.runs = []run{{job: j.id, worker: "w", by: "w/1", began: at(2), finished: at(3)}}
		})
	}
	b.retire(at(15))
	if len(b.jobs) != 2 {
		t.Fatalf("got %d jobs after retire, want 2", len(b.jobs))
	}
	b.read(ledger.Entry{Kind: ledger.Begin, N: 1, Job: "1", Worker: "v", At: at(30)})
	sums, found := b.audit()
	if sums.Accepted != 3 || sums.Lost != 0 || sums.Uncaused != 1 || !slices.Equal(rules(found), []string{ruleAfterEnd}) {
		t.Errorf("got %+v, %v; want 3 jobs and one run after the end", sums, found)
	}
}

func TestATornEndIsExpectedOnlyAfterAKill(t *testing.T) {
	const torn, damaged = "the end of a file of the store is torn, as after ...", "a file of the store is damaged; what ..."
	for text, wants := range map[string]map[bool]bool{ // after a kill: it is accepted
		"flightline ready":    {false: true, true: true},
		torn:                  {false: false, true: true},
		damaged:               {false: false, true: false},
		torn + "\n" + damaged: {false: false, true: false},
	} {
		for killed, want := range wants {
			w := &world{cutShort: killed, dev: &process{log: filepath.Join(t.TempDir(), "dev.log")}}
			if err := os.WriteFile(w.dev.log, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := w.undamaged(); (err == nil) != want {
				t.Errorf("%q, killed %t: got %v, want it accepted: %t", text, killed, err, want)
			}
		}
	}
}
