package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"flightline/e2e/gauge"
)

// row is one figure: the medians of its rounds, and the median of the rounds'
// ratios. In the rows of scale, Bare is the small installation's figure.
type row struct {
	Setup  string  `json:"setup"`
	Case   string  `json:"case"`
	Metric string  `json:"metric"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"ours"`
	Bare   float64 `json:"bare,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
	Rounds int     `json:"rounds"`
}

// rowsOf condenses the rounds of a case.
func rowsOf(setup, name string, pairs []pair) []row {
	if len(pairs) == 0 {
		return nil
	}
	var rows []row
	for _, m := range pairs[0].ours {
		var ours, bare, ratios []float64
		for _, p := range pairs {
			v, _ := p.ours.value(m.name)
			ours = append(ours, v)
			if b, ok := p.bare.value(m.name); ok {
				bare = append(bare, b)
				if b > 0 {
					ratios = append(ratios, v/b)
				}
			}
		}
		rows = append(rows, row{
			Setup: setup, Case: name, Metric: m.name, Unit: m.unit, Rounds: len(pairs),
			Ours: gauge.Median(ours), Bare: gauge.Median(bare), Ratio: gauge.Median(ratios),
		})
	}
	return rows
}

// aim is what a figure should reach, and whether it did.
type aim struct {
	Text  string  `json:"text"`
	Want  float64 `json:"want"`
	Got   float64 `json:"got"`
	Holds bool    `json:"holds"`
}

// report is what the bench has to say.
type report struct {
	Machine string        `json:"machine"`
	Load    string        `json:"loadAverageBefore"`
	Fsync   time.Duration `json:"fsync"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`
	Short   bool          `json:"short"`
	Rows    []row         `json:"rows"`
	Aims    []aim         `json:"aims"`
}

func newReport(o options, dir string) *report {
	return &report{Machine: gauge.Machine(), Load: gauge.LoadAverage(), Fsync: fsyncTime(dir), Began: time.Now().UTC(), Short: o.short}
}

// finish judges the rows.
func (r *report) finish() {
	r.Took = time.Since(r.Began).Round(time.Second)
	for _, x := range r.Rows {
		switch {
		case x.Case == "jobs" && x.Metric == "rate":
			r.aim(x.Ratio >= 0.6, 0.6, x.Ratio, "%s: jobs/s over HTTP, share of the bare pipeline's, at least", x.Setup)
			if strings.Contains(x.Setup, syncGroup) {
				r.aim(x.Ours >= 4000, 4000, x.Ours, "%s: whole jobs/s with an fsync before each answer, at least", x.Setup)
			}
		case x.Case == "runsync1" && x.Metric == "p50":
			r.aim(x.Ratio <= 2, 2, x.Ratio, "%s: runsync p50 of an idle system, times the bare round trip, at most", x.Setup)
		case x.Setup == consoleCase:
			r.consoleRow(x)
		case x.Setup == scaleCase:
			r.aim(x.Ratio <= 1.5, 1.5, x.Ratio, "%s: %s p50, times that of the small one, at most", x.Case, x.Metric)
		}
	}
}

func (r *report) aim(holds bool, want, got float64, format string, args ...any) {
	r.Aims = append(r.Aims, aim{Text: fmt.Sprintf(format, args...), Want: want, Got: got, Holds: holds})
}

// print writes the table.
func (r *report) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s; fsync of 4 KB %.2f ms; load average before %s; took %s\n\n", r.Machine, r.Fsync.Seconds()*1000, r.Load, r.Took)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SETUP\tCASE\tFIGURE\tOURS\tBARE (scale: small)\tRATIO")
	for _, x := range r.Rows {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%s\t%s\n", x.Setup, x.Case, x.Metric, x.Unit, number(x.Ours), number(x.Bare), number(x.Ratio))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(out)
	t = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, a := range r.Aims {
		verdict := "holds"
		if !a.Holds {
			verdict = "MISSED"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s %s\tgot %s\n", verdict, a.Text, number(a.Want), number(a.Got))
	}
	_ = t.Flush()
}

// number prints three digits that count.
func number(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644) //nolint:gosec // figures are no secret
}
