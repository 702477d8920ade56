package pod_test

import (
	"testing"
	"time"

	"flightline/shared/pod"
)

func phaseTime(s int) time.Time { return time.Unix(int64(1000+s), 0).UTC() }

func TestPhasesAreEnteredInOrder(t *testing.T) {
	t.Parallel()
	type entry struct {
		phase    pod.Phase
		life, at int
	}
	for name, tc := range map[string]struct {
		entries []entry
		want    pod.Phases
	}{
		"a container":   {[]entry{{pod.Pulling, 0, 1}, {pod.Starting, 0, 5}, {pod.Loading, 0, 6}, {pod.Ready, 0, 40}}, pod.Phases{Pulling: phaseTime(1), Starting: phaseTime(5), Loading: phaseTime(6), Ready: phaseTime(40)}},
		"a process":     {[]entry{{pod.Starting, 0, 5}, {pod.Loading, 0, 6}}, pod.Phases{Starting: phaseTime(5), Loading: phaseTime(6)}},
		"once more":     {[]entry{{pod.Loading, 0, 6}, {pod.Loading, 0, 9}}, pod.Phases{Loading: phaseTime(6)}},
		"one left out":  {[]entry{{pod.Starting, 0, 5}, {pod.Ready, 0, 9}}, pod.Phases{Starting: phaseTime(5), Ready: phaseTime(9)}},
		"from before":   {[]entry{{pod.Starting, 0, 5}, {pod.Loading, 0, 4}}, pod.Phases{Starting: phaseTime(5), Loading: phaseTime(5)}},
		"started again": {[]entry{{pod.Starting, 0, 5}, {pod.Ready, 0, 9}, {pod.Starting, 0, 20}}, pod.Phases{Starting: phaseTime(20)}},
		"another life":  {[]entry{{pod.Starting, 0, 5}, {pod.Ready, 0, 9}, {pod.Ready, 1, 20}}, pod.Phases{Life: 1, Ready: phaseTime(20)}},
		"no name":       {[]entry{{pod.Starting, 0, 5}, {"", 0, 9}, {"other", 1, 9}}, pod.Phases{Starting: phaseTime(5)}},
	} {
		var got pod.Phases
		for _, e := range tc.entries {
			got = got.Enter(e.phase, e.life, phaseTime(e.at))
		}
		if got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestThePhaseOfAPod(t *testing.T) {
	t.Parallel()
	loading := pod.Phases{Life: 2, Pulling: phaseTime(1), Loading: phaseTime(6)}
	for name, tc := range map[string]struct {
		pod   pod.Pod
		phase pod.Phase
		since time.Time
	}{
		"it loads":            {pod.Pod{Status: pod.Running, Starts: 2, Phases: loading}, pod.Loading, phaseTime(6)},
		"to be started again": {pod.Pod{Status: pod.Running, Starts: 3, Phases: loading}, "", time.Time{}},
		"it ended":            {pod.Pod{Status: pod.Exited, Starts: 2, Phases: loading}, "", time.Time{}},
		"not begun":           {pod.Pod{Status: pod.Running}, "", time.Time{}},
	} {
		if phase, since := tc.pod.Phase(); phase != tc.phase || !since.Equal(tc.since) {
			t.Errorf("%s: got %q since %v, want %q since %v", name, phase, since, tc.phase, tc.since)
		}
	}
	if got := loading.Begun(); !got.Equal(phaseTime(1)) {
		t.Errorf("got the begin %v, want that of the first phase", got)
	}
}

func TestHowLongPhasesLast(t *testing.T) {
	t.Parallel()
	whole := pod.Phases{Pulling: phaseTime(0), Loading: phaseTime(6), Ready: phaseTime(36)}
	for phase, want := range map[pod.Phase]time.Duration{pod.Pulling: 6 * time.Second, pod.Starting: 0, pod.Loading: 30 * time.Second, pod.Ready: 0, "": 0} {
		if got := whole.Took(phase); got != want {
			t.Errorf("%s: got %v, want %v", phase, got, want)
		}
	}
	start := func(endpoint string, at, loads int) pod.Pod {
		return pod.Pod{Endpoint: endpoint, Phases: pod.Phases{Loading: phaseTime(at), Ready: phaseTime(at + loads)}}
	}
	pods := []pod.Pod{start("other", 1000, 500), {Endpoint: "ep", Phases: pod.Phases{Loading: phaseTime(2000)}}}
	if got := pod.Usual(pods, "ep", pod.Loading); got != 0 {
		t.Errorf("none was ready yet: got %v, want 0", got)
	}
	for i, loads := range []int{900, 900, 900, 900, 900, 10, 10, 10, 10, 35, 60, 60, 60, 60} { // the first five are too old to count
		pods = append(pods, start("ep", 100*i, loads))
	}
	if got := pod.Usual(pods, "ep", pod.Loading); got != 35*time.Second {
		t.Errorf("got %v, want the median of the last nine", got)
	}
	if got := pod.Usual(pods, "ep", pod.Pulling); got != 0 {
		t.Errorf("none pulled: got %v, want 0", got)
	}
}
