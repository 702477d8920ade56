package main

import (
	"math"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestOverheadIsThatOfAllTurns(t *testing.T) {
	turn := func(server, api, worker time.Duration) spent {
		return spent{jobs: 1000, took: time.Second, cpu: [3]time.Duration{server, api, worker}}
	}
	off := []spent{turn(100, 50, 50), turn(60, 20, 20)}
	ours := []spent{turn(100, 60, 60), turn(60, 26, 24)}
	want := map[string]float64{"time": 1, "cpu": 1.1, "cpu server": 1, "cpu api": 86.0 / 70, "cpu worker": 84.0 / 70, "cpu ratio ±": 10.0 / 300}
	rows := besideOff("jobs, both", off, ours)
	if len(rows) != len(want) {
		t.Errorf("got %d rows, want %d", len(rows), len(want))
	}
	for _, r := range rows {
		if math.Abs(r.Ratio-want[r.Metric]) > 1e-9 {
			t.Errorf("%s: got the ratio %v, want %v", r.Metric, r.Ratio, want[r.Metric])
		}
	}
}

func TestSpansAreCountedUnread(t *testing.T) {
	scope := func(n int) *otlp.ScopeSpans {
		s := &otlp.ScopeSpans{SchemaUrl: "x"}
		for range n {
			s.Spans = append(s.Spans, &otlp.Span{Name: "s", Attributes: nil})
		}
		return s
	}
	body, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{
		{SchemaUrl: "x", ScopeSpans: []*otlp.ScopeSpans{scope(3), scope(0), scope(2)}}, {ScopeSpans: []*otlp.ScopeSpans{scope(1)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := spansIn(body); got != 6 {
		t.Errorf("got %d, want 6", got)
	}
	for i := range body {
		_ = spansIn(body[:i]) // what is broken does not panic
	}
}

func TestThreadsHaveUsedTime(t *testing.T) {
	if got, all := threadTime(1<<30), cpuTime(1<<30); got != 0 || all != 0 {
		t.Errorf("got %v and %v of no process, want nothing", got, all)
	}
}
