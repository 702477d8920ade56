package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"flightline/e2e/gauge"
)

// scaleName is whose figures those of scale are.
const scaleName = "flightline-interval, once"

// figures are the values of the rounds, by system and metric.
type figures map[string]map[string][]float64

func (f figures) add(system, metric string, value float64) {
	if f[system] == nil {
		f[system] = map[string][]float64{}
	}
	f[system][metric] = append(f[system][metric], value)
}

// aim is what a figure should reach: by itself, or as the ratio to a peer's in the same
// round. One without a bound is shown and not judged.
type aim struct {
	system, metric, peer, peerMetric string
	atLeast                          bool
	bound                            float64
}

func aims() []aim {
	const (
		standard, lazy, always = "flightline-default", "flightline-interval", "flightline-always"
		bullmq, bullmqAlways   = "bullmq-everysec", "bullmq-always"
	)
	return []aim{
		{system: standard, metric: cyclesPerSecond, peer: bullmqAlways, atLeast: true, bound: 1},
		{system: always, metric: cyclesPerSecond, peer: bullmqAlways},
		{system: lazy, metric: cyclesPerSecond, peer: bullmq, atLeast: true, bound: 1.3},
		{system: lazy, metric: cyclesPerSecond, peer: "asynq-everysec"},
		{system: lazy, metric: cpuPer1000, bound: 0.2},
		{system: lazy, metric: cpuPer1000, peer: bullmq},
		{system: standard, metric: cpuPer1000, bound: 0.26},
		{system: lazy, metric: openP50, bound: 2.5},
		{system: lazy, metric: openP50, peer: bullmq, bound: 0.5},
		{system: standard, metric: openP50, bound: 3.5},
		{system: standard, metric: openP50, peer: bullmqAlways, bound: 0.5},
		{system: lazy, metric: runSyncP50, bound: 0.8},
		{system: standard, metric: runSyncP50, bound: 1.6},
		{system: lazy, metric: runPerSecond, peer: "echo", atLeast: true, bound: 0.45},
		{system: scaleName, metric: longEnd, bound: 300},
		{system: scaleName, metric: longEnd, peer: scaleName, peerMetric: longMinute, bound: 1.1},
		{system: scaleName, metric: longP99Last, peer: scaleName, peerMetric: longP99, bound: 1.1},
		{system: scaleName, metric: deepQueued, bound: 600},
		{system: scaleName, metric: deepMost, bound: 800},
		{system: scaleName, metric: crowdIdle, bound: 200},
		{system: scaleName, metric: crowdStop, bound: 3},
	}
}

// values are those of the rounds that an aim is about, nil if they were not measured.
func (f figures) values(a aim) []float64 {
	ours := f[a.system][a.metric]
	if a.peer == "" {
		return slices.Clone(ours)
	}
	metric := a.metric
	if a.peerMetric != "" {
		metric = a.peerMetric
	}
	return ratios(ours, f[a.peer][metric])
}

// ratios are those of the rounds that both have.
func ratios(ours, theirs []float64) (all []float64) {
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] > 0 {
			all = append(all, ours[i]/theirs[i])
		}
	}
	return all
}

// judge shows the aim, and whether a value holds it.
func (a aim) judge(value float64) (want, verdict string) {
	want, holds := "≤ "+number(a.bound), value <= a.bound
	if a.atLeast {
		want, holds = "≥ "+number(a.bound), value >= a.bound
	}
	switch {
	case a.bound == 0:
		return "–", ""
	case holds:
		return want, "held"
	}
	return want, "**missed**"
}

// print writes three tables in Markdown: the aims, the two builds of flightline, and what
// was measured.
func (f figures) print(out io.Writer, head string) {
	_, _ = fmt.Fprintf(out, "%s\n\n| | aim | got | |\n|---|---|---|---|\n", head)
	for _, a := range aims() {
		values := f.values(a)
		if len(values) == 0 {
			continue
		}
		what := a.system + ": " + a.metric
		if a.peer != "" {
			what += " / that of " + a.peer
		}
		want, verdict := a.judge(gauge.Median(values))
		_, _ = fmt.Fprintf(out, "| %s | %s | %s | %s |\n", what, want, spread(values), verdict)
	}
	f.printBuilds(out)
	f.printAll(out)
}

// printBuilds compares with the build that -beside named.
func (f figures) printBuilds(out io.Writer) {
	head := "\n| new / old build | ratio |\n|---|---|\n"
	for _, name := range names() {
		for _, metric := range metrics() {
			if all := ratios(f[name][metric], f["old-"+name][metric]); len(all) > 0 {
				_, _ = fmt.Fprintf(out, "%s| %s: %s | %s |\n", head, name, metric, spread(all))
				head = ""
			}
		}
	}
}

// metrics are those of a turn, in order.
func metrics() []string {
	return []string{cyclesPerSecond, cpuPer1000, openP50, openP99, runSyncP50, runPerSecond, memory}
}

func (f figures) printAll(out io.Writer) {
	_, _ = fmt.Fprintf(out, "\n| median (least..most) | %s |\n|---|%s\n", strings.Join(metrics(), " | "), strings.Repeat("---|", len(metrics())))
	for _, name := range names() {
		for _, system := range []string{name, "old-" + name} {
			if f[system] == nil {
				continue
			}
			row := []string{system}
			for _, metric := range metrics() {
				row = append(row, spread(f[system][metric]))
			}
			_, _ = fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
		}
	}
	if once := f[scaleName]; once != nil {
		_, _ = fmt.Fprintf(out, "\n| %s | |\n|---|---|\n", scaleName)
		for _, metric := range []string{longMinute, longEnd, longP99, longP99Last, deepQueued, deepMost, deepRate, crowdIdle, crowdStop} {
			if len(once[metric]) > 0 {
				_, _ = fmt.Fprintf(out, "| %s | %s |\n", metric, spread(once[metric]))
			}
		}
	}
}

// spread shows the median, and the least and the most of several.
func spread(values []float64) string {
	values = slices.Clone(values)
	switch len(values) {
	case 0:
		return "–"
	case 1:
		return number(values[0])
	}
	return fmt.Sprintf("%s (%s..%s)", number(gauge.Median(values)), number(values[0]), number(values[len(values)-1]))
}

// number prints three digits that count.
func number(v float64) string {
	digits := 3
	for _, limit := range []float64{1, 10, 100} {
		if v >= limit {
			digits--
		}
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }
