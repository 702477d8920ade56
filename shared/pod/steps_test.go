package pod

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSteps(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	phases := Phases{Pulling: at(1), Starting: at(14), Loading: at(15), Ready: at(51)}
	started := "pulling:pulling the image my/worker:2|starting:starting|loading:loading: its program runs|ready:ready 50s after its start began"
	tests := map[string]struct {
		p      Pod
		want   string
		failed bool
	}{
		"not begun":        {Pod{Status: Running}, "", false},
		"without an image": {Pod{Status: Running, Phases: Phases{Starting: at(1), Loading: at(2)}}, "starting:starting|loading:loading: its program runs", false},
		"ready":            {Pod{Status: Running, Phases: phases}, started, false},
		"asleep":           {Pod{Status: Running, Sleep: Sleep{At: at(60), Asleep: at(61)}}, "sleep:asked to sleep|asleep:asleep", false},
		"wakes":            {Pod{Status: Running, Sleep: Sleep{At: at(60), Asleep: at(61), Wake: at(90)}}, "sleep:asked to sleep|asleep:asleep|wake:asked to wake", false},
		"awake":            {Pod{Status: Running, Sleep: Sleep{Wake: at(90)}.Awake(at(92))}, "awake:awake after 2s", false},
		"drains":           {Pod{Status: Running, Phases: Phases{Starting: at(1)}, Drain: Drain{At: at(70), Why: "1 idle for 5s"}}, "starting:starting|drain:draining: 1 idle for 5s", false},
		"ended":            {Pod{Status: Terminated, By: Remove, Changed: at(80), Change: "1 idle for 5s"}, "TERMINATED:ended: 1 idle for 5s", false},
		"ended by itself":  {Pod{Status: Exited, By: Exit, Changed: at(80), Change: "it ended by itself with code 1"}, "EXITED:ended: it ended by itself with code 1", true},
		"in order":         {Pod{Status: Exited, By: Stop, Changed: at(80), Change: "by request", Drain: Drain{At: at(70), Why: "x"}, Sleep: Sleep{At: at(60)}}, "sleep:asked to sleep|drain:draining: x|EXITED:ended: by request", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.p.Spec.Image = "my/worker:2"
			var got []string
			last := time.Time{}
			for _, s := range test.p.Steps() {
				if s.At.Before(last) || s.Failed && !test.failed {
					t.Errorf("got %+v", s)
				}
				last = s.At
				got = append(got, fmt.Sprintf("%s:%s", s.Name, s.Text))
				test.failed = test.failed && !s.Failed
			}
			if strings.Join(got, "|") != test.want || test.failed {
				t.Errorf("got %q, want %q; a failure is missing: %t", strings.Join(got, "|"), test.want, test.failed)
			}
		})
	}
}
