package autoscaler

import (
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

func TestAWorkerIsReplacedWhoseHandlerGoesOnWithAJobThatEnded(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	m := &endpointState{}
	for _, look := range []struct {
		after time.Duration
		stale []string
		want  time.Duration
	}{
		{0, []string{"a"}, 0},
		{30 * time.Second, []string{"a", "b"}, 30 * time.Second},
		{40 * time.Second, []string{"b"}, 10 * time.Second}, // one after the other
		{50 * time.Second, nil, 0},
		{60 * time.Second, []string{"b"}, 0},
		{119 * time.Second, []string{"b"}, 59 * time.Second},
		{120 * time.Second, []string{"b"}, time.Minute},
	} {
		now, next := noon.Add(look.after), map[staleJob]time.Time{}
		got := m.staleFor("w", registry.Worker{Stale: look.stale}, next, now)
		if m.stale = next; got != look.want {
			t.Errorf("after %s: got %s, want %s", look.after, got, look.want)
		}
		if why := faultOf(registry.Token{}, got, 0, now); (why != "") != (look.want >= time.Minute) {
			t.Errorf("after %s: got %q", look.after, why)
		}
	}
}

func TestAWorkerIsReplacedThatIgnoresJobs(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	m := &endpointState{}
	for _, look := range []struct {
		after   time.Duration
		state   state
		rested  time.Duration
		waiting bool
		want    time.Duration
	}{
		{0, idle, time.Hour, false, 0},
		{10 * time.Second, idle, time.Hour, true, 0},
		{60 * time.Second, idle, time.Hour, true, 50 * time.Second},
		{65 * time.Second, busy, 0, true, 0}, // it has taken one
		{70 * time.Second, idle, time.Second, true, 0},
		{129 * time.Second, idle, time.Minute, true, 59 * time.Second},
		{130 * time.Second, idle, 5 * time.Second, true, 5 * time.Second}, // it had one between two pings
		{131 * time.Second, idle, time.Minute, true, time.Minute},
		{132 * time.Second, idle, time.Minute, false, 0},
		{133 * time.Second, idle, time.Minute, true, 0},
	} {
		now, next := noon.Add(look.after), map[staleJob]time.Time{}
		got := m.ignoresFor(member{id: "w", state: look.state, rested: look.rested}, look.waiting, next, now)
		if m.stale = next; got != look.want {
			t.Errorf("after %s: got %s, want %s", look.after, got, look.want)
		}
		if why := faultOf(registry.Token{}, 0, got, now); (why != "") != (look.want >= time.Minute) {
			t.Errorf("after %s: got %q", look.after, why)
		}
	}
}

func TestJobsAreLeftThatAnIdleWorkerCouldTake(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		e    endpoint.Endpoint
		in   sample
		want bool
	}{
		"none":                     {want: false},
		"one that has just come":   {in: sample{oldest: time.Second}},
		"one in the queue":         {in: sample{oldest: time.Minute}, want: true},
		"one that lost its worker": {in: sample{orphans: orphans{1, time.Minute}}, want: true},
		"one of a paused endpoint": {e: endpoint.Endpoint{PausedUntil: noon.Add(time.Hour)}, in: sample{oldest: time.Minute}},
	} {
		if got := jobsAreLeft(tt.e, tt.in, noon); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
