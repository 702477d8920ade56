package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// ended is the end of a job on a worker; cause is "" for a COMPLETED job.
func ended(worker, cause string) events.Event {
	e := events.Event{Kind: events.Completed, Status: job.Completed, Worker: worker, Cause: cause, Error: cause}
	if cause != "" {
		e.Kind, e.Status = events.Failed, job.Failed
	}
	return e
}

func TestSameFailureOf(t *testing.T) {
	started := events.Event{Kind: events.Started, Status: job.InProgress, Worker: "c"}
	cancelled := events.Event{Kind: events.Cancelled, Status: job.Cancelled, Worker: "c"}
	timedOut := events.Event{Kind: events.TimedOut, Status: job.TimedOut, Worker: "c"}
	for name, test := range map[string]struct {
		latest []events.Event
		want   sameFailure
	}{
		"none":                       {nil, sameFailure{}},
		"numbers do not count":       {[]events.Event{ended("a", "no model 7"), ended("b", "no model 8")}, sameFailure{2, 2, "no model 7"}},
		"one worker":                 {[]events.Event{ended("a", "no"), ended("a", "no")}, sameFailure{2, 1, "no"}},
		"a success ends the row":     {[]events.Event{ended("a", "no"), ended("b", ""), ended("b", "no")}, sameFailure{1, 1, "no"}},
		"the last is a success":      {[]events.Event{ended("b", ""), ended("a", "no")}, sameFailure{}},
		"another cause ends it too":  {[]events.Event{ended("a", "no"), ended("b", "why")}, sameFailure{1, 1, "no"}},
		"and so does a timeout":      {[]events.Event{ended("a", "no"), timedOut, ended("b", "no")}, sameFailure{1, 1, "no"}},
		"starts and cancels do not":  {[]events.Event{started, ended("a", "no"), cancelled, ended("b", "no")}, sameFailure{2, 2, "no"}},
		"a failure without its text": {[]events.Event{{Kind: events.Failed, Status: job.Failed, Worker: "a"}}, sameFailure{}},
	} {
		if got := sameFailureOf(test.latest); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestDecideWhileJobsFail(t *testing.T) {
	const long = time.Hour
	failing := sameFailure{jobs: 5, workers: 2, cause: "no model"}
	checkDecisions(t, map[string]decisionTest{
		"no more for jobs that wait long": {
			e: ep(bounds(0, 9)), s: sample{failing: failing, queued: 5, oldest: time.Minute, machines: 1, members: crew(long, busy, busy)},
			want: decision{wanted: 4, reason: registry.ScalingFailing},
		},
		"nor for many jobs": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: failing, queued: 5, machines: 1, members: crew(long, busy, busy)},
			want: decision{wanted: 5, reason: registry.ScalingFailing},
		},
		"one tries where there is none": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: failing, queued: 5, machines: 1},
			want: decision{wanted: 5, start: 1, reason: registry.ScalingRequests},
		},
		"the minimum is kept": {
			e: ep(requests(1), bounds(3, 9)), s: sample{failing: failing, queued: 5, machines: 1, members: crew(long, busy, busy)},
			want: decision{wanted: 5, start: 1, reason: registry.ScalingRequests},
		},
		"a successor is started": {
			e: ep(bounds(0, 9)), s: sample{failing: failing, machines: 1, members: crew(time.Second, idle)}, replaced: []string{"gone"},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingReplace},
		},
		"also where its jobs ask for more": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: failing, queued: 5, machines: 1, members: crew(long, busy)}, replaced: []string{"gone"},
			want: decision{wanted: 5, start: 1, reason: registry.ScalingRequests},
		},
		"but not before its place is free": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: failing, queued: 5, machines: 1, members: crew(long, busy, draining)}, replaced: []string{"w1"},
			want: decision{wanted: 5, reason: registry.ScalingFailing},
		},
		"an outdated one is replaced": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: failing, queued: 5, running: 2, allRunning: 2, machines: 1, members: stale(crew(long, busy, busy))},
			want: decision{wanted: 7, drain: []string{"w0"}, reason: registry.ScalingReplace},
		},
		"fewer failures are chance": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: sameFailure{jobs: 4, workers: 2}, queued: 5, machines: 1, members: crew(long, busy, busy)},
			want: decision{wanted: 5, start: 3, reason: registry.ScalingRequests},
		},
		"those of one of two workers are that worker's": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: sameFailure{jobs: 9, workers: 1}, queued: 5, machines: 1, members: crew(long, busy, busy)},
			want: decision{wanted: 5, start: 3, reason: registry.ScalingRequests},
		},
		"those of the only worker are all": {
			e: ep(requests(1), bounds(0, 9)), s: sample{failing: sameFailure{jobs: 9, workers: 1}, queued: 5, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 5, reason: registry.ScalingFailing},
		},
	})
}

func TestJobsThatFailOnEachWorkerStartNoMore(t *testing.T) {
	s := newEnv(t)
	log := s.events()
	made := s.endpoint("ep", requests(1), bounds(0, 9))
	for n := range minSameFailures {
		s.writeEnd(log, n, ended(fmt.Sprint("worker-", n%2), fmt.Sprintf("RuntimeError: no model %d", n)))
	}
	e := s.engine("machine")
	s.autoscaler(e)
	for range 3 {
		s.submit(made, false)
	}
	testenv.EventuallyNone(t, func() string {
		d, err := s.registry.Scaling.Last(t.Context(), "ep")
		if err != nil || d.Reason != registry.ScalingFailing || !strings.Contains(d.Text, "the last 5 jobs failed on 2 workers for one cause") || !strings.HasSuffix(d.Text, "RuntimeError: no model 4") {
			return fmt.Sprintf("got %s: %s, %v, want failing", d.Reason, d.Text, err)
		}
		return ""
	})
	if got := e.pods(); len(got) > 1 {
		t.Errorf("got workers %v, want a single one", got)
	}
	s.writeEnd(log, minSameFailures, ended("worker-0", ""))
	s.runs("ep", map[int]int{1: 3})
}
