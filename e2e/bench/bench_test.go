package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestQuantileIsTheSmallestThatTheShareDoesNotExceed(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	tests := map[string]struct {
		of   []int
		q    float64
		want int
	}{
		"none":          {nil, 0.5, 0},
		"one":           {[]int{7}, 0.99, 7},
		"half of two":   {[]int{1, 2}, 0.5, 1},
		"half of three": {[]int{1, 2, 3}, 0.5, 2},
		"p50 of 100":    {hundred, 0.5, 50},
		"p99 of 100":    {hundred, 0.99, 99},
		"all":           {hundred, 1, 100},
		"none of them":  {hundred, 0, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := quantile(tt.of, tt.q); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// A round that was slow for both says nothing: the ratio is each round's own.
func TestRatiosAreThoseOfTheRounds(t *testing.T) {
	rate := func(v float64) reading { return reading{{"rate", perSecond, v}} }
	rows := rowsOf("s", "jobs", []pair{{rate(100), rate(50)}, {rate(10), rate(6)}, {rate(100), rate(70)}})
	if len(rows) != 1 || rows[0].Ratio != 0.6 || rows[0].Ours != 50 || rows[0].Bare != 100 {
		t.Errorf("got %+v, want a ratio of 0.6 of 50 and 100", rows)
	}
	if rows := rowsOf("s", "idle", []pair{{nil, rate(3)}}); rows[0].Ratio != 0 || rows[0].Bare != 0 {
		t.Errorf("got %+v, want no ratio where there is nothing beside it", rows)
	}
}

func TestLoadDoesEachOnce(t *testing.T) {
	const n = 100
	done := make(chan int, 2*n)
	s, err := load(t.Context(), n, 8, func(_ context.Context, i int) error { done <- i; return nil })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for range len(done) {
		seen[<-done] = true
	}
	if len(seen) != n || s.N != n {
		t.Errorf("got %d operations, %d in the sample, want %d", len(seen), s.N, n)
	}
}

func TestLoadStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	_, err := load(t.Context(), 1_000_000, 4, func(_ context.Context, i int) error {
		if i == 10 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestOnlySelectsCasesAndSetups(t *testing.T) {
	tests := map[string]struct {
		only string
		want map[string]bool
	}{
		"everything":    {"", map[string]bool{"interval": true, "jobs": true, "scale": true}},
		"a case":        {"jobs", map[string]bool{"interval": true, "always": true, "jobs": true, "cancel": false, "scale": false}},
		"a setup":       {"always", map[string]bool{"interval": false, "always": true, "jobs": true, "scale": false}},
		"both":          {"always,jobs", map[string]bool{"interval": false, "always": true, "jobs": true, "cancel": false}},
		"scale":         {"scale", map[string]bool{"interval": false, "jobs": false, "scale": true}},
		"console":       {"console", map[string]bool{"interval": false, "jobs": false, "scale": false, "console": true}},
		"case, scale":   {"jobs,scale", map[string]bool{"interval": true, "jobs": true, "scale": true}},
		"setups, scale": {"always,scale", map[string]bool{"interval": false, "jobs": true, "scale": true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for what, want := range tt.want {
				if got := (options{only: tt.only}).wants(what); got != want {
					t.Errorf("got %v for %s, want %v", got, what, want)
				}
			}
		})
	}
}

func TestAimsAreJudged(t *testing.T) {
	r := report{Rows: []row{
		{Setup: "interval", Case: "jobs", Metric: "rate", Ratio: 0.5, Ours: 5000},
		{Setup: "group", Case: "jobs", Metric: "rate", Ratio: 2, Ours: 4000},
		{Setup: "interval", Case: "runsync1", Metric: "p50", Ratio: 2},
		{Setup: "scale", Case: "many", Metric: "ack", Ratio: 1.6},
		{Setup: "interval", Case: "submit", Metric: "rate", Ratio: 0.1},
		{Setup: "console", Case: "/ui/", Metric: "p95", Ours: 101},
		{Setup: "console", Case: "/ui/", Metric: "p50", Ours: 99},
		{Setup: "console", Case: "/ui/ open", Metric: "cpu", Ours: 3.5, Bare: 2},
		{Setup: "console", Case: "runsync, 50 open", Metric: "p50", Ours: 2.5, Bare: 1},
	}}
	r.finish()
	var got []bool
	for _, a := range r.Aims {
		got = append(got, a.Holds)
	}
	want := []bool{false, true, true, true, false, false, true, false}
	if len(got) != len(want) {
		t.Fatalf("got %d aims, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v for %q, want %v", got[i], r.Aims[i].Text, want[i])
		}
	}
	var out bytes.Buffer
	r.print(&out)
	if !strings.Contains(out.String(), "MISSED") {
		t.Errorf("got %q, want what was missed in it", out.String())
	}
}

func TestACaseThatFailsLeavesTheFiguresOfThoseBefore(t *testing.T) {
	want := errors.New("no room")
	cases := []benchCase{
		{"interval", func(context.Context) ([]row, error) {
			return []row{{Setup: "interval", Case: "jobs", Metric: "rate", Ratio: 0.7, Ours: 4321}}, nil
		}},
		{"scale", func(context.Context) ([]row, error) { return nil, want }},
	}
	var out bytes.Buffer
	err := new(bench).all(t.Context(), cases, &report{}, &out)
	if !errors.Is(err, want) || !strings.Contains(out.String(), "4321") {
		t.Errorf("got %v and %q, want %v and the rate 4321", err, out.String(), want)
	}
}
