package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// countOfViolations names the line of the table that counts them.
const countOfViolations = "violations"

// report is what an experiment found.
type report struct {
	nodes      int
	took       time.Duration
	turmoil    time.Duration // of that
	quiet      time.Duration // until all had come to rest
	kept       string        // the folder of the ledgers, if it was kept
	histories  map[string]*history
	events     int
	calls      map[string]int
	kills      map[string]int
	crashes    map[string]int
	slowest    time.Duration
	left       int // queue messages of expired jobs
	violations []violation
	missing    []string // what the experiment should have done, and did not
}

func newReport(s *site, v *evidence, c *client) *report {
	r := &report{nodes: len(s.nodes), histories: v.histories, calls: map[string]int{}, kills: s.tally.kills, left: s.expiredLeft, crashes: map[string]int{}}
	if v.recorded != nil {
		r.events = len(v.recorded.log)
	}
	if c != nil {
		r.slowest = c.slowest
	}
	for _, e := range v.entries {
		switch e.Kind {
		case submitOp, cancelOp, retryOp, ttlOp, purgeOp:
			r.calls[fmt.Sprintf("%s: %s", e.Kind, e.Answer)]++
		case dying:
			r.crashes[e.Point]++
		case statusOp, began, intends, ended, refused, gaveBack, silent, spoke, emitted, died:
		}
	}
	return r
}

func (r *report) add(found ...violation) { r.violations = append(r.violations, found...) }

// least says how often the harm must have been done for the result to count.
func (r *report) least(x experiment) {
	for _, p := range points() {
		if n := r.crashes[string(p)]; n < x.least {
			r.missing = append(r.missing, fmt.Sprintf("%d crashes %s, want %d", n, p, x.least))
		}
	}
	for _, what := range x.harm() {
		if r.kills[what] == 0 {
			r.missing = append(r.missing, "none: "+what)
		}
	}
}

func (r *report) good() bool { return len(r.violations) == 0 && len(r.missing) == 0 }

// print writes the table.
func (r *report) print(out io.Writer) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(out, "  %-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	runs, statuses, writes, gaps, attempts := r.count()
	_, _ = fmt.Fprintf(out, "\n%d NATS node(s), %d jobs in %s (turmoil %s, until quiet %s)\n",
		r.nodes, len(r.histories), r.took.Round(time.Second), r.turmoil.Round(time.Second), r.quiet.Round(time.Second))
	line("answers to callers", "%s", list(r.calls))
	line("record writes seen", "%d of %d attempts; %d attempts with a write not seen", writes, attempts, gaps)
	line("events told", "%d", r.events)
	line("runs per attempt", "%s", list(runs))
	line("last status", "%s", list(statuses))
	line("kills", "%s", list(r.kills))
	line("kills at a crash point", "%s", list(r.crashes))
	line("expired, still queued", "%d", r.left)
	line("slowest answer", "%s", r.slowest.Round(time.Millisecond))
	for _, m := range r.missing {
		line("MISSING", "%s", m)
	}
	line(countOfViolations, "%d", len(r.violations))
	const most = 4 // of each rule
	told := map[string]int{}
	for _, v := range r.violations {
		if told[v.rule]++; told[v.rule] <= most {
			_, _ = fmt.Fprintf(out, "    %s\n", v)
		}
	}
	if len(told) > 0 {
		line("by rule", "%s", list(told))
	}
	if r.kept != "" {
		line("ledgers kept in", "%s", r.kept)
	}
}

func (r *report) count() (runs, statuses map[string]int, writes, gaps, attempts int) {
	runs, statuses = map[string]int{}, map[string]int{}
	for _, s := range r.histories {
		most := map[int]int{}
		for _, w := range s.writes {
			most[w.attempt] = max(most[w.attempt], w.Run)
		}
		for _, n := range most {
			runs[fmt.Sprintf("%d", n)]++
		}
		status := "never picked up"
		if n := len(s.writes); n > 0 {
			status = s.writes[n-1].Status
		}
		statuses[status]++
		writes, gaps, attempts = writes+len(s.writes), gaps+len(s.gaps), attempts+len(most)
	}
	return runs, statuses, writes, gaps, attempts
}

func list(counts map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}
