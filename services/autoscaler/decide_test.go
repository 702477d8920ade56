package autoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

func TestDecide(t *testing.T) {
	const long, short = time.Hour, time.Second
	checkDecisions(t, map[string]decisionTest{
		"nothing to do": {e: ep(), want: decision{}},
		"the first job starts a worker at once": {
			e: ep(), s: sample{queued: 30, machines: 1},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"low priority starts none": {e: ep(), s: sample{queuedLow: 30, machines: 1}, want: decision{}},
		"the minimum is started without jobs": {
			e: ep(bounds(2, 3)), s: sample{machines: 1},
			want: decision{wanted: 2, start: 2, reason: registry.ScalingMinimum},
		},
		"the minimum and the first job": {
			e: ep(bounds(2, 3)), s: sample{queued: 1, machines: 1},
			want: decision{wanted: 2, start: 2, reason: registry.ScalingMinimum},
		},
		"a job that waits for less than the delay starts none": {
			e: ep(), s: sample{queued: 5, oldest: 3 * time.Second, machines: 1, running: 1, allRunning: 1, members: crew(long, busy)},
			want: decision{wanted: 1},
		},
		"a longer wait doubles the fleet": {
			e: ep(bounds(0, 9)), s: sample{queued: 5, oldest: 5 * time.Second, machines: 1, running: 2, allRunning: 2, members: crew(long, busy, busy)},
			want: decision{wanted: 4, start: 2, reason: registry.ScalingDelay},
		},
		"but no more than there are jobs": {
			e: ep(bounds(0, 9)), s: sample{queued: 1, oldest: 5 * time.Second, machines: 1, running: 2, allRunning: 2, members: crew(long, busy, busy)},
			want: decision{wanted: 3, start: 1, reason: registry.ScalingDelay},
		},
		"and no more than the maximum": {
			e: ep(), s: sample{queued: 50, oldest: time.Minute, machines: 1, running: 2, allRunning: 2, members: crew(long, busy, busy)},
			want: decision{wanted: 3, start: 1, reason: registry.ScalingDelay},
		},
		"and once in a delay": {
			e: ep(), s: sample{queued: 5, oldest: 5 * time.Second, machines: 1, members: crew(long, busy)}, grew: 2 * time.Second,
			want: decision{wanted: 1},
		},
		"idle workers will take what waits": {
			e: ep(), s: sample{queued: 1, oldest: time.Minute, machines: 1, members: crew(short, idle)},
			want: decision{wanted: 1},
		},
		"requests: nine jobs, four each": {
			e: ep(requests(4)), s: sample{queued: 8, running: 1, allRunning: 1, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 3, start: 2, reason: registry.ScalingRequests},
		},
		"requests: eight jobs, four each": {
			e: ep(requests(4)), s: sample{queued: 7, running: 1, allRunning: 1, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingRequests},
		},
		"requests: a thousand": {
			e: ep(requests(1)), s: sample{queued: 1000, machines: 1},
			want: decision{wanted: 3, start: 3, reason: registry.ScalingRequests},
		},
		"requests: jobs on workers that an owner started ask for none": {
			e: ep(requests(1)), s: sample{queued: 1, running: 3, allRunning: 3, elsewhere: 2, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingRequests},
		},
		"requests: and keep none": {
			e: ep(requests(1)), s: sample{running: 2, allRunning: 2, elsewhere: 2, machines: 1, members: crew(long, idle)},
			want: decision{drain: []string{"w0"}, reason: registry.ScalingIdle},
		},
		"requests: those may be the jobs of low priority": {
			e: ep(requests(1)), s: sample{running: 2, allRunning: 3, elsewhere: 1, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingRequests},
		},
		"idle for idleTimeout": {
			e: ep(), s: sample{machines: 1, members: crew(5*time.Second, idle, idle)},
			want: decision{drain: []string{"w1", "w0"}, reason: registry.ScalingIdle},
		},
		"idle for less": {e: ep(), s: sample{machines: 1, members: crew(4*time.Second, idle, idle)}, want: decision{wanted: 2}},
		"idle, but the fleet has just grown": {
			e: ep(), s: sample{machines: 1, members: crew(long, idle, idle)}, grew: 4 * time.Second,
			want: decision{wanted: 2},
		},
		"the minimum stays": {
			e: ep(bounds(1, 3)), s: sample{machines: 1, members: crew(long, idle, idle)},
			want: decision{wanted: 1, drain: []string{"w1"}, reason: registry.ScalingIdle},
		},
		"busy and starting workers stay": {
			e: ep(), s: sample{machines: 1, allRunning: 1, members: crew(long, busy, starting)},
			want: decision{wanted: 2},
		},
		"a job was taken by one of those that look idle": {
			e: ep(), s: sample{machines: 1, running: 1, allRunning: 1, members: crew(long, idle, idle)},
			want: decision{wanted: 1, drain: []string{"w1"}, reason: registry.ScalingIdle},
		},
		"jobs on workers that an owner started keep none": {
			e: ep(), s: sample{machines: 1, running: 3, allRunning: 3, elsewhere: 2, members: crew(long, busy, idle, idle)},
			want: decision{wanted: 1, drain: []string{"w2", "w1"}, reason: registry.ScalingIdle},
		},
		"the maximum was lowered: idle ones go at once, busy ones do not": {
			e: ep(bounds(0, 1)), s: sample{machines: 1, running: 2, allRunning: 2, members: crew(short, busy, busy, idle)}, grew: time.Second,
			want: decision{wanted: 2, drain: []string{"w2"}, reason: registry.ScalingBound},
		},
		"the maximum was lowered: those that start go before idle ones": {
			e: ep(bounds(0, 1)), s: sample{machines: 1, queued: 1, members: crew(short, starting, idle, starting, idle)}, grew: time.Second,
			want: decision{wanted: 1, drain: []string{"w0", "w2", "w3"}, reason: registry.ScalingBound},
		},
		"it is turned off while they start": {
			e: ep(bounds(0, 0)), s: sample{machines: 1, queued: 1, members: append(locked(crew(short, starting)), member{id: "other"})}, grew: time.Second,
			want: decision{wanted: 1, drain: []string{"other"}, reason: registry.ScalingBound},
		},
		"the fleet is off, and jobs wait": {
			e: ep(bounds(0, 0)), s: sample{queued: 9, oldest: time.Hour, machines: 1}, want: decision{},
		},
		"it is turned off: idle ones go at once": {
			e: ep(bounds(0, 0)), s: sample{queued: 9, machines: 1, running: 1, allRunning: 1, members: crew(short, busy, idle, idle)}, grew: time.Second,
			want: decision{wanted: 1, drain: []string{"w2", "w1"}, reason: registry.ScalingBound},
		},
		"it is off, and somebody else runs the workers": {
			e: ep(elsewhere, bounds(0, 0)), s: sample{queued: 9}, before: 2, want: decision{reason: registry.ScalingBound},
		},
		"back-off": {
			e: ep(), s: sample{queued: 1, machines: 1, failures: 4, lastFailure: noon.Add(-7 * time.Second), failure: "boom"},
			want: decision{wanted: 1, reason: registry.ScalingBackoff},
		},
		"a back-off from before the clock was set back": {
			e: ep(), s: sample{queued: 1, machines: 1, failures: 4, lastFailure: noon.Add(time.Hour), failure: "boom"},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"after the back-off one is tried": {
			e: ep(requests(1)), s: sample{queued: 9, machines: 1, failures: 4, lastFailure: noon.Add(-8 * time.Second)},
			want: decision{wanted: 3, start: 1, reason: registry.ScalingRequests},
		},
		"and no second one before it is known": {
			e: ep(requests(1)), s: sample{queued: 9, machines: 1, failures: 4, lastFailure: noon.Add(-time.Minute), members: crew(short, starting)},
			want: decision{wanted: 3, reason: registry.ScalingBackoff},
		},
		"unknown: hold": {
			e: ep(), s: sample{unknown: "no answer", members: crew(long, idle)}, before: 2,
			want: decision{wanted: 2, hold: true, reason: registry.ScalingUnknown},
		},
		"paused: no starts": {e: ep(paused), s: sample{queued: 9, machines: 1}, want: decision{reason: registry.ScalingPaused}},
		"paused: idle ones go": {
			e: ep(paused), s: sample{machines: 1, members: crew(long, idle)},
			want: decision{drain: []string{"w0"}, reason: registry.ScalingIdle},
		},
		"paused: idle ones go though jobs wait": {
			e: ep(paused), s: sample{queued: 9, oldest: time.Hour, running: 1, allRunning: 1, machines: 1, members: crew(long, busy, idle, idle)},
			want: decision{wanted: 1, drain: []string{"w2", "w1"}, reason: registry.ScalingIdle},
		},
		"paused: and stay until then": {
			e: ep(paused, requests(1)), s: sample{queued: 9, machines: 1, members: crew(short, idle)}, want: decision{wanted: 1, reason: registry.ScalingPaused},
		},
		"paused: workersMin ones stay": {
			e: ep(paused, bounds(1, 3)), s: sample{queued: 9, machines: 1, members: crew(long, idle)}, want: decision{wanted: 1, reason: registry.ScalingPaused},
		},
		"paused: somebody else's go though jobs wait": {
			e: ep(paused, elsewhere), s: sample{queued: 9}, before: 2, want: decision{reason: registry.ScalingIdle},
		},
		"paused: and none of somebody else's are asked for": {
			e: ep(paused, elsewhere), s: sample{queued: 9}, want: decision{reason: registry.ScalingPaused},
		},
		"no machine": {e: ep(), s: sample{queued: 1}, want: decision{wanted: 1, reason: registry.ScalingNoMachine}},
		"no template": {
			e: ep(), s: sample{queued: 1, machines: 1, invalid: "no template"},
			want: decision{wanted: 1, reason: registry.ScalingInvalid},
		},
		"a changed endpoint replaces one idle worker at a time": {
			e: ep(bounds(2, 3)), s: sample{machines: 1, members: stale(crew(short, idle, idle))},
			want: decision{wanted: 2, drain: []string{"w0"}, reason: registry.ScalingReplace},
		},
		"and none while another one starts": {
			e: ep(bounds(2, 3)), s: sample{machines: 1, members: append(stale(crew(short, idle)), member{id: "new"})},
			want: decision{wanted: 2},
		},
		"draining and unhealthy workers are none": {
			e: ep(bounds(1, 3)), s: sample{machines: 1, members: crew(long, draining, unhealthy)},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingMinimum},
		},
		// A worker that drains still holds its GPU: a host of workersMax GPUs could start no other.
		"those that drain make up workersMax until they have left": {
			e: ep(bounds(1, 1)), s: sample{queued: 1, machines: 1, members: crew(long, draining)},
			want: decision{wanted: 1, reason: registry.ScalingLeaving},
		},
		"and bound how many are started": {
			e: ep(requests(1)), s: sample{queued: 9, machines: 1, members: crew(long, draining)},
			want: decision{wanted: 3, start: 2, reason: registry.ScalingRequests},
		},
		"a locked worker is one, and stays": {
			e: ep(), s: sample{machines: 1, members: locked(crew(long, idle))},
			want: decision{wanted: 1},
		},
		"and the other one goes": {
			e: ep(), s: sample{machines: 1, members: append(locked(crew(long, idle)), member{id: "other", state: idle, since: noon.Add(-long), rested: long})},
			want: decision{wanted: 1, drain: []string{"other"}, reason: registry.ScalingIdle},
		},
		"it stays above the maximum too": {
			e: ep(bounds(0, 0)), s: sample{machines: 1, queued: 1, members: locked(crew(long, idle))},
			want: decision{wanted: 1},
		},
		"and is not replaced": {
			e: ep(bounds(1, 3)), s: sample{machines: 1, members: stale(locked(crew(short, idle)))},
			want: decision{wanted: 1},
		},
		"external: the first job": {e: ep(elsewhere), s: sample{queued: 3}, want: decision{wanted: 1, reason: registry.ScalingFromZero}},
		"external: more": {
			e: ep(elsewhere), s: sample{queued: 3, oldest: 5 * time.Second, members: crew(long, busy)}, before: 1,
			want: decision{wanted: 2, reason: registry.ScalingDelay},
		},
		"external: fewer": {e: ep(elsewhere), before: 2, want: decision{reason: registry.ScalingIdle}},
		"external: busy ones are wanted": {
			e: ep(elsewhere), s: sample{running: 1, allRunning: 1, members: crew(long, busy, idle)}, before: 2,
			want: decision{wanted: 1, reason: registry.ScalingIdle},
		},
		"external: so are those that had a job just now": {
			e: ep(elsewhere), s: sample{members: append(crew(short, idle, idle), crew(long, idle)...)}, before: 3,
			want: decision{wanted: 2, reason: registry.ScalingIdle},
		},
		"external: but no more than were wanted": {e: ep(elsewhere), s: sample{members: crew(short, idle, idle)}, before: 1, want: decision{wanted: 1}},
	})
}

func TestAFirstJobSaysThatNoWorkerLivesOnlyIfNoneDoes(t *testing.T) {
	for want, s := range map[string]sample{"3 jobs wait": {queued: 3, members: crew(time.Hour, idle)}, "3 jobs wait; there is no worker": {queued: 3}} {
		if got := decide(ep(elsewhere), s, memory{}, noon).text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheTextOfADecisionCountsOne(t *testing.T) {
	byRequests := endpoint.Endpoint{ScalerType: endpoint.RequestCount, ScalerValue: 4}
	for want, got := range map[string]string{
		"1 job waits":                              sample{queued: 1}.waiting(),
		"2 jobs wait":                              sample{queued: 2}.waiting(),
		"0 jobs wait and 1 has lost its worker":    sample{orphans: orphans{count: 1}}.waiting(),
		"1 job waits and 2 have lost their worker": sample{queued: 1, orphans: orphans{count: 2}}.waiting(),
		"1 job waits and 0 run, 4 for each worker": needed(byRequests, sample{queued: 1}, memory{}, 0, nil, noon).text,
		"a worker failed":                          failedText(1),
		"no autoscaler with the driver docker runs: none was started with docker in --drivers": decide(
			endpoint.Endpoint{WorkersMax: 1, Fleet: endpoint.Fleet{Driver: "docker"}}, sample{queued: 1}, memory{}, noon).text,
		"workers failed 2 times in a row": failedText(2),
		"1 worker":                        counted(1, "worker"),
		"2 workers":                       counted(2, "worker"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// decisionTest is what decide should make of a sample.
type decisionTest struct {
	e        endpoint.Endpoint
	s        sample
	grew     time.Duration // ago, 0 for long ago
	before   int           // wanted
	replaced []string
	want     decision
}

func checkDecisions(t *testing.T, tests map[string]decisionTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := memory{wanted: test.before, replaced: test.replaced}
			if test.grew > 0 {
				m.grew = noon.Add(-test.grew)
			}
			got := decide(test.e, test.s, m, noon)
			if got.reason != "" && got.text == "" {
				t.Errorf("reason %s has no text", got.reason)
			}
			got.memory, got.text = memory{}, ""
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{}, memory{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackoffDoublesUpToFiveMinutes(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: 0, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := startBackoff.Delay(failures); got != want {
			t.Errorf("after %d failures: got %s, want %s", failures, got, want)
		}
	}
}
