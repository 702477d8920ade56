package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/e2e/gauge"
)

func TestChooseTakesWhatIsNamed(t *testing.T) {
	for _, c := range []struct {
		only string
		want []string
		err  string
	}{
		{"", []string{"flightline-default", "flightline-interval", "flightline-always", "bullmq-everysec", "bullmq-always", "asynq-everysec", "asynq-always", "echo"}, ""},
		{"echo,flightline-group", []string{"flightline-group", "echo"}, ""},
		{"echo,celery", nil, `unknown system "celery"`},
	} {
		chosen, err := choose(c.only)
		var got []string
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("-only %q: got %q and %v, want %q and %q", c.only, got, err, c.want, c.err)
		}
	}
}

// Each aim names systems and metrics that are measured.
func TestAimsAreJudgedByTheRatiosOfTheSameRound(t *testing.T) {
	f := figures{}
	for _, v := range []float64{10, 20, 40} {
		f.add("flightline-default", cyclesPerSecond, v)
	}
	for _, v := range []float64{10, 10, 10} {
		f.add("bullmq-always", cyclesPerSecond, v)
	}
	f.add("flightline-interval", cpuPer1000, 0.3)
	f.add("bullmq-everysec", cpuPer1000, 0.5)
	f.add(scaleName, longEnd, 220)
	f.add(scaleName, longMinute, 200)
	var out strings.Builder
	f.print(&out, "head")
	for _, want := range []string{
		"| flightline-default: cycles/s / that of bullmq-always | ≥ 1.00 | 2.00 (1.00..4.00) | held |",
		"| flightline-interval: CPU s per 1000 jobs | ≤ 0.200 | 0.300 | **missed** |",
		"the same at the end / that of flightline-interval, once | ≤ 1.10 | 1.10 | held |",
		"| flightline-interval: CPU s per 1000 jobs / that of bullmq-everysec | – | 0.600 |  |",
		"| bullmq-always | 10.0 (10.0..10.0) | – |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant a line with %q", out.String(), want)
		}
	}
}

func TestQuantilesAndMedians(t *testing.T) {
	var l latencies
	for i := range 100 {
		l.add(1e6 * time.Duration(100-i))
	}
	if p50, p99 := l.quantile(0.5), l.quantile(0.99); p50 != 51 || p99 != 100 {
		t.Errorf("got %v and %v, want 51 and 100", p50, p99)
	}
	if got := gauge.Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("got the median %v, want 2.5", got)
	}
	for v, want := range map[float64]string{0.1234: "0.123", 1.234: "1.23", 12.34: "12.3", 1234: "1234"} {
		if got := number(v); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
