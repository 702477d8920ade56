package system

import (
	"fmt"
	"slices"
	"time"
)

// job is what callers and handlers know about one job.
type job struct {
	n        int
	id       string   // "" while no answer had one
	others   []string // ids that other answers under the same key had
	sent     time.Time
	accepted time.Time // of the answer 200; zero if there was none
	ended    time.Time // when a caller saw a terminal status; zero if it did not
	hidden   time.Time // when a caller was first answered 404; zero if it was not
	hiding   string    // what that answer said
	status   string    // the last that a caller saw, or why it saw none
	by       string    // the run that the output names
	runs     []run     // by their beginning
}

// run is one run of a handler.
type run struct {
	job             string
	worker, by      string
	began, finished time.Time // finished is zero if the handler did not come to its end
}

// harm says what the test did to a worker.
type harm string

const (
	killed harm = "killed"
	frozen harm = "frozen" // stopped by SIGSTOP, or cut off from every server
	asked  harm = "asked"  // to end, by SIGTERM
)

// incident is a harm that was done to a worker. An until of zero means that it
// lasts.
type incident struct {
	harm        harm
	worker      string
	from, until time.Time
}

// rule is what the audit demands of a scenario.
type rule struct {
	// lease of the endpoint. A worker that was frozen for two thirds of it may
	// have been silent for all of it: its heartbeats are a third apart.
	lease time.Duration
	// end is how long a job may take from its acceptance, or from the last
	// fault if that was later, to its end, without stalls. 0 means any time.
	end time.Duration
	// overtaken is how long a job may wait while jobs that were accepted later
	// begin, without stalls. 0 means any time.
	overtaken time.Duration
}

// violation is a promise that was broken.
type violation struct{ Rule, Text string }

func (v violation) String() string { return v.Rule + ": " + v.Text }

// The names of the rules.
const (
	ruleLost     = "accepted is never lost"
	ruleHidden   = "an accepted job is known"
	ruleDoubled  = "no second run without cause"
	ruleAfterEnd = "nothing runs after its end"
	ruleOutcome  = "one outcome, of a run that finished"
	ruleKey      = "one job per key"
	ruleLate     = "in time"
	ruleGPU      = "a GPU is given once"
	ruleSteps    = "each step of a worker is in its log once"
	ruleProcess  = "processes live"
	ruleServes   = "serves again"
)

// judge returns what is wrong with a job once all is quiet.
func (r rule) judge(j *job, incidents []incident) []violation {
	var found []violation
	add := func(rule, format string, args ...any) {
		found = append(found, violation{rule, fmt.Sprintf("job %d (%s) ", j.n, j.id) + fmt.Sprintf(format, args...)})
	}
	if len(j.others) > 0 {
		add(ruleKey, "has other ids under its key: %v", j.others)
	}
	if j.accepted.IsZero() {
		return found
	}
	if j.status != completed {
		add(ruleLost, "is %s when all is quiet", j.status)
	}
	if j.wasHidden() {
		add(ruleHidden, "was answered %s %s after it was accepted, and is %s", j.hiding, j.hidden.Sub(j.accepted).Round(time.Millisecond), j.status)
	}
	finished := func(o run) bool { return !o.finished.IsZero() }
	switch named := slices.IndexFunc(j.runs, func(o run) bool { return o.by == j.by }); {
	case j.status != completed:
	case named < 0 || !finished(j.runs[named]):
		add(ruleOutcome, "is COMPLETED by %q, which the ledger does not have as finished", j.by)
	}
	for i, o := range j.runs {
		if o.job != j.id && j.id != "" {
			add(ruleKey, "ran as %s too", o.job)
		}
		if !j.ended.IsZero() && o.began.After(j.ended) {
			add(ruleAfterEnd, "began by %s %s after it was %s", o.by, o.began.Sub(j.ended).Round(time.Millisecond), j.status)
			continue
		}
		if i > 0 && r.cause(j.runs[i-1], o.began, incidents) == "" {
			add(ruleDoubled, "began by %s %s after %s, whose worker lived", o.by, o.began.Sub(j.runs[i-1].began).Round(time.Millisecond), j.runs[i-1].by)
		}
	}
	return found
}

// wasHidden reports whether a caller was answered 404 for a job that is known.
func (j *job) wasHidden() bool {
	return !j.accepted.IsZero() && !j.hidden.IsZero() && j.status != "404"
}

// cause is why a run was over when the next one began, "" if it was not.
func (r rule) cause(o run, next time.Time, incidents []incident) harm {
	for _, h := range incidents {
		if h.worker != o.worker || h.from.After(next) {
			continue
		}
		until := h.until
		if until.IsZero() || until.After(next) {
			until = next
		}
		switch {
		case h.harm == killed,
			h.harm == asked && o.finished.IsZero(),
			h.harm == frozen && until.After(o.began) && until.Sub(h.from) >= r.lease*2/3:
			return h.harm
		}
	}
	return ""
}

// late returns what is wrong with how long a job took. calm is the end of the
// last fault.
func (r rule) late(j *job, calm time.Time, still stalls) []violation {
	if r.end == 0 || j.accepted.IsZero() || j.ended.IsZero() {
		return nil // a job that has not ended is lost
	}
	from := j.accepted
	if calm.After(from) {
		from = calm
	}
	if took := j.ended.Sub(from); took-still.within(from, j.ended) > r.end {
		return []violation{{ruleLate, fmt.Sprintf("job %d (%s) ended %s after it was accepted, or the last fault was over, want %s at most",
			j.n, j.id, took.Round(time.Millisecond), r.end)}}
	}
	return nil
}

// passedOver returns the jobs that waited while others, which were accepted at
// least a second later, began: that they waited is no fault of a busy machine.
func (r rule) passedOver(jobs []*job, still stalls) []violation {
	if r.overtaken == 0 {
		return nil
	}
	var begun []*job
	for _, j := range jobs {
		if !j.accepted.IsZero() && len(j.runs) > 0 {
			begun = append(begun, j)
		}
	}
	slices.SortFunc(begun, func(a, b *job) int { return b.accepted.Compare(a.accepted) })
	var found []violation
	var first time.Time // the earliest beginning among jobs accepted a second later
	next := 0
	for _, j := range begun {
		for ; begun[next].accepted.Sub(j.accepted) >= time.Second; next++ {
			if b := begun[next].runs[0].began; first.IsZero() || b.Before(first) {
				first = b
			}
		}
		if first.IsZero() {
			continue
		}
		began := j.runs[0].began
		if waited := began.Sub(first); waited-still.within(first, began) > r.overtaken {
			found = append(found, violation{ruleLate, fmt.Sprintf("job %d (%s) began %s after a job that was accepted later, want %s at most",
				j.n, j.id, waited.Round(time.Millisecond), r.overtaken)})
		}
	}
	return found
}
