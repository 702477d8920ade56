package system

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what a scenario found.
type Result struct {
	Name, Does string
	// LeftOut is what the scenario would have needed, "" if it was played.
	LeftOut string
	Faults  map[string]int
	sums
	// Slowest is the longest time from a submission to its acceptance.
	SlowestAccept time.Duration
	Errors        map[string]int // of tries to submit
	GivenUp       int            // submissions that were not accepted in time; nothing was promised
	Stalled       time.Duration  // how long the machine stood still, all in all
	Notes         []string
	Violations    []violation
	Took          time.Duration
	Kept          string // the folder of the logs, if it was kept
}

// take audits the world.
func (r *Result) take(w *world) {
	r.sums, r.Violations = w.book.audit()
	r.Stalled = w.book.stillFor()
	w.mu.Lock()
	r.Violations = append(r.Violations, w.found...)
	r.Faults, r.Notes = w.done, w.notes
	w.mu.Unlock()
	c := w.callers
	c.mu.Lock()
	r.SlowestAccept, r.Errors, r.GivenUp = c.slowest, maps.Clone(c.errors), c.givenUp
	c.mu.Unlock()
	if r.Accepted == 0 {
		r.Violations = append(r.Violations, violation{ruleServes, "no job was accepted"})
	}
}

// Good reports whether no promise was broken.
func (r *Result) Good() bool { return len(r.Violations) == 0 }

// Print writes the result for people.
func (r *Result) Print(out io.Writer) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	if r.LeftOut != "" {
		line("\n%s: LEFT OUT, it needs %s", r.Name, r.LeftOut)
		return
	}
	line("\n%s: %s, in %s", r.Name, r.Does, r.Took.Round(time.Second))
	line("  %-10s %s", "faults", list(r.Faults))
	line("  %-10s accepted %d, given up %d, lost %d, ran again %d, finished twice %d, without cause %d, late %d, answered 404 %d, slowest accept %s, slowest end %s",
		"jobs", r.Accepted, r.GivenUp, r.Lost, r.Reruns, r.Doubled, r.Uncaused, r.Late, r.Hidden, ms(r.SlowestAccept), ms(r.Slowest))
	if len(r.Errors) > 0 {
		line("  %-10s %s", "refused", list(r.Errors))
	}
	if r.Stalled > 0 {
		line("  %-10s %s in all, by a file that is written beside", "stalls", ms(r.Stalled))
	}
	for _, n := range r.Notes {
		line("  %-10s %s", "", n)
	}
	line("  %-10s %d", "violations", len(r.Violations))
	const most = 5 // of each rule
	printed := map[string]int{}
	for _, v := range r.Violations {
		if printed[v.Rule]++; printed[v.Rule] <= most {
			line("    %s", v)
		}
	}
	if r.Kept != "" {
		line("  %-10s %s", "kept in", r.Kept)
	}
}

// Markdown writes the rows of results as a table.
func Markdown(out io.Writer, results []*Result) {
	_, _ = fmt.Fprintln(out, "| scenario | what is done | how often | accepted | lost | ran again | finished twice | without cause | late | slowest accept | slowest end | violations |")
	_, _ = fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range results {
		if r.LeftOut != "" {
			_, _ = fmt.Fprintf(out, "| `%s` | %s | not run: needs %s | | | | | | | | | |\n", r.Name, r.Does, r.LeftOut)
			continue
		}
		_, _ = fmt.Fprintf(out, "| `%s` | %s | %s | %d | %d | %d | %d | %d | %d | %s | %s | %d |\n", r.Name, r.Does, list(r.Faults),
			r.Accepted, r.Lost, r.Reruns, r.Doubled, r.Uncaused, r.Late, ms(r.SlowestAccept), ms(r.Slowest), len(r.Violations))
	}
}

// ms is a duration as the tables have it.
func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func list(counts map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}
