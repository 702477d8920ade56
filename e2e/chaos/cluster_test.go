package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestOnceEach(t *testing.T) {
	written := &history{writes: []write{{seq: 1}}}
	tests := map[string]struct {
		calls []callerCall
		jobs  []string // with a record
		want  int
	}{
		"one job for each key":                     {[]callerCall{{job: "a"}, {job: "b"}}, []string{"a", "b"}, 0},
		"a key has two jobs":                       {[]callerCall{{job: "a", others: []string{"b"}}}, []string{"a"}, 1},
		"two keys have one job":                    {[]callerCall{{job: "a"}, {job: "a"}}, []string{"a"}, 1},
		"a job that nobody asked for":              {[]callerCall{{job: "a"}}, []string{"a", "b"}, 1},
		"a job of a caller who was told of no job": {[]callerCall{{job: "a"}, {}}, []string{"a", "b"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			histories := map[string]*history{"asked for and never there": {}}
			for _, id := range tt.jobs {
				histories[id] = written
			}
			if got := (&load{calls: tt.calls}).onceEach(histories); len(got) != tt.want {
				t.Errorf("got %v, want %d violations", got, tt.want)
			}
		})
	}
}

func TestClusterReportSortsCallsByWhatWasDone(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	harm := []period{{killed, at(10), at(20)}, {cutOff, at(30), at(40)}}
	calls := []callerCall{
		{due: at(1), took: time.Millisecond, accepted: true, job: "a"},
		{due: at(10), took: 2 * time.Second, accepted: true, job: "b", errors: []string{"503", "no answer", "503"}},
		{due: at(20), took: time.Millisecond, accepted: true, job: "c"},
		{due: at(35), took: time.Minute, job: "d", errors: []string{"503"}},
	}
	ended := write{job: "b", at: at(13), recordHead: recordHead{Status: completed}}
	c := newClusterReport(cluster{rate: 1, last: time.Minute}, &report{}, calls, []write{ended}, harm)
	var out bytes.Buffer
	c.print(&out)
	for _, want := range []string{
		"| no harm | 0 | 2 | 8001 ms | 1 ms | 1 ms | 1 ms | 0 ms | 0 ms |  | 0 |",
		"| kill -9 of a node | 1 | 1 | 10999 ms | 2000 ms | 2000 ms | 2000 ms | 3000 ms | 3000 ms | 503 2, no answer 1 | 0 |",
		"| a node cut off | 1 | 1 | 0 ms | 0 ms | 0 ms | 0 ms | 0 ms | 0 ms | 503 1 | 1 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s\nwant the line %s", out.String(), want)
		}
	}
	if c.good() {
		t.Error("got good, want bad: a call was given up, and most harm was not done")
	}
}
