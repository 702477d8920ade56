package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// clusterReport is a report, and what callers saw while each harm was done.
type clusterReport struct {
	*report
	x    cluster
	rows []clusterRow
}

// clusterRow is what was seen in the periods of one kind of harm.
type clusterRow struct {
	what      string
	periods   int
	submitted int
	givenUp   int
	answers   []time.Duration // until a submission was accepted, sorted
	ends      []time.Duration // until the job was over, sorted; one in longEvery takes seconds by itself
	errors    map[string]int  // of tries, by code
}

func newClusterReport(x cluster, r *report, calls []callerCall, writes []write, harm []period) *clusterReport {
	c := &clusterReport{report: r, x: x}
	for _, what := range []string{calmly, killed, cutOff, cutPair} {
		c.rows = append(c.rows, clusterRow{what: what, errors: map[string]int{}})
	}
	for _, p := range harm {
		c.row(p.what).periods++
	}
	ended := map[string]time.Time{}
	for _, w := range writes {
		if terminal(w.Status) {
			ended[w.job] = w.at
		}
	}
	for _, call := range calls {
		row := c.row(during(harm, call.due))
		row.add(call, ended)
	}
	for i := range c.rows {
		slices.Sort(c.rows[i].answers)
		slices.Sort(c.rows[i].ends)
	}
	return c
}

func (c *clusterReport) row(what string) *clusterRow {
	return &c.rows[slices.IndexFunc(c.rows, func(r clusterRow) bool { return r.what == what })]
}

// during is the harm that was done at t.
func during(harm []period, t time.Time) string {
	for _, p := range harm {
		if !t.Before(p.from) && t.Before(p.until) {
			return p.what
		}
	}
	return calmly
}

func (r *clusterRow) add(c callerCall, ended map[string]time.Time) {
	r.submitted++
	for _, err := range c.errors {
		r.errors[err]++
	}
	if !c.accepted {
		r.givenUp++
		return
	}
	r.answers = append(r.answers, c.took)
	if at, ok := ended[c.job]; ok {
		r.ends = append(r.ends, at.Sub(c.due))
	}
}

// quantile of sorted durations, 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// good reports whether the ledger is clean, every submission was accepted in
// the end, and each kind of harm was done to every node.
func (c *clusterReport) good() bool {
	for _, r := range c.rows {
		if r.givenUp > 0 || r.what != calmly && r.periods < clusterNodes {
			return false
		}
	}
	return c.report.good()
}

func (c *clusterReport) print(out io.Writer) {
	c.report.print(out)
	_, _ = fmt.Fprintf(out, "\n%d jobs/s for %s: what callers saw, by what was done when they came\n\n", c.x.rate, c.x.last)
	_, _ = fmt.Fprintln(out, "| | times | jobs | accepted p50 | p99 | slowest | ended p50 | p99 | tries that failed | given up |")
	_, _ = fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range c.rows {
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		_, _ = fmt.Fprintf(out, "| %s | %d | %d | %s | %s | %s | %s | %s | %s | %d |\n", r.what, r.periods, r.submitted,
			ms(quantile(r.answers, 0.5)), ms(quantile(r.answers, 0.99)), ms(quantile(r.answers, 1)),
			ms(quantile(r.ends, 0.5)), ms(quantile(r.ends, 0.99)), list(r.errors), r.givenUp)
	}
}
