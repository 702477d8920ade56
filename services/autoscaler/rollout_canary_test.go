package autoscaler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// outcomes is the tally of jobs of which some failed; all others took as long.
func outcomes(jobs, failed int, took time.Duration) tally {
	return tally{jobs: jobs, failed: failed, times: slices.Repeat([]time.Duration{took}, jobs-failed)}
}

func TestJudgeCanary(t *testing.T) {
	const second = time.Second
	crashed := func(n int, t tally) tally {
		t.crashes, t.crash = n, "it ended by itself with code 1"
		return t
	}
	for name, test := range map[string]struct {
		canary, former tally
		age            time.Duration
		state, why     string
	}{
		"nothing yet":                  {tally{}, outcomes(200, 0, second), time.Minute, "", ""},
		"too few on the new one":       {outcomes(19, 0, second), outcomes(200, 0, second), time.Minute, "", ""},
		"too few on the former one":    {outcomes(200, 0, second), outcomes(19, 0, second), time.Minute, "", ""},
		"no worse":                     {outcomes(20, 1, second), outcomes(20, 0, second), time.Minute, endpoint.CanaryPromoted, "1 of 20 jobs failed on version 2, 0 of 20 on version 1"},
		"two of twenty may fail":       {outcomes(20, 2, second), outcomes(20, 0, second), time.Minute, endpoint.CanaryPromoted, ""},
		"three may not":                {outcomes(20, 3, second), outcomes(20, 0, second), time.Minute, endpoint.CanaryRolledBack, "3 of 20 jobs failed on version 2"},
		"nor of the first three":       {outcomes(3, 3, second), tally{}, time.Minute, endpoint.CanaryRolledBack, "3 of 3 jobs failed on version 2, 0 of 0 on version 1"},
		"two of the first two may":     {outcomes(2, 2, second), outcomes(200, 0, second), time.Minute, "", ""},
		"as many as of the former may": {outcomes(20, 11, second), outcomes(200, 100, second), time.Minute, endpoint.CanaryPromoted, ""},
		"many jobs, many failures":     {outcomes(200, 21, second), outcomes(200, 0, second), time.Minute, endpoint.CanaryRolledBack, ""},
		"slower":                       {outcomes(20, 0, 1600*time.Millisecond), outcomes(20, 0, second), time.Minute, endpoint.CanaryRolledBack, "the median job took 1.6s on version 2, 1s on version 1"},
		"a bit slower":                 {outcomes(20, 0, 1500*time.Millisecond), outcomes(20, 0, second), time.Minute, endpoint.CanaryPromoted, ""},
		"slower by nothing to notice":  {outcomes(20, 0, 90*time.Millisecond), outcomes(20, 0, 10*time.Millisecond), time.Minute, endpoint.CanaryPromoted, ""},
		"late, without a job":          {tally{}, outcomes(200, 0, second), canaryTimeout, endpoint.CanaryPromoted, "0 of 0 jobs failed"},
		"late, and its workers fail":   {crashed(1, tally{}), outcomes(200, 0, second), canaryTimeout, endpoint.CanaryRolledBack, "1 worker of version 2 failed"},
		"late, and each job failed":    {outcomes(2, 2, second), outcomes(200, 0, second), canaryTimeout, endpoint.CanaryRolledBack, "2 of 2 jobs failed on version 2"},
		"late, one job of ten failed":  {outcomes(10, 1, second), outcomes(200, 0, second), canaryTimeout, endpoint.CanaryPromoted, ""},
		"late, one job of nine failed": {outcomes(9, 1, second), outcomes(200, 0, second), canaryTimeout, endpoint.CanaryRolledBack, "1 of 9 jobs failed"},
		"late, as bad as the former":   {outcomes(2, 1, second), outcomes(200, 100, second), canaryTimeout, endpoint.CanaryPromoted, ""},
		"late and slower":              {outcomes(12, 0, 3*second), outcomes(12, 0, second), canaryTimeout, endpoint.CanaryRolledBack, "the median job"},
		"workers that fail":            {crashed(3, tally{}), crashed(2, tally{}), time.Minute, endpoint.CanaryRolledBack, "3 workers of version 2 failed, 2 of version 1: it ended by itself with code 1"},
		"as those of the former do":    {crashed(3, tally{}), crashed(3, tally{}), time.Minute, "", ""},
		"two that fail":                {crashed(2, tally{}), tally{}, time.Minute, "", ""},
	} {
		e := endpoint.Endpoint{Canary: endpoint.Canary{State: endpoint.CanaryRunning, Version: 2, FormerVersion: 1, Began: noon.Add(-test.age)}}
		if state, why := judgeCanary(e, test.canary, test.former, noon); state != test.state || !strings.HasPrefix(why, test.why) {
			t.Errorf("%s: got %q because %q, want %q because %q", name, state, why, test.state, test.why)
		}
	}
}

// The hour of a canary does not pass while the endpoint is paused: it begins again at the
// end of the pause.
func TestAPauseHoldsUpACanary(t *testing.T) {
	for name, test := range map[string]struct {
		paused time.Time
		state  string
	}{
		"never paused":            {time.Time{}, endpoint.CanaryPromoted},
		"paused":                  {noon.Add(time.Minute), ""},
		"the pause is just over":  {noon, ""},
		"an hour after the pause": {noon.Add(-canaryTimeout), endpoint.CanaryPromoted},
		"paused before it began":  {noon.Add(-4 * canaryTimeout), endpoint.CanaryPromoted},
	} {
		e := endpoint.Endpoint{PausedUntil: test.paused, Canary: endpoint.Canary{State: endpoint.CanaryRunning, Version: 2, FormerVersion: 1, Began: noon.Add(-3 * canaryTimeout)}}
		if state, why := judgeCanary(e, tally{}, tally{}, noon); state != test.state {
			t.Errorf("%s: got %q because %q, want %q", name, state, why, test.state)
		}
	}
}

func TestPlanCanary(t *testing.T) {
	const n, f, o = canaryVersion, formerVersion, otherVersion
	for name, test := range map[string]struct {
		percent  int
		versions []version
		states   []state // all idle if nil
		missing  int
		stale    []bool
		replaced []string
	}{
		"none is there":                      {10, nil, nil, 1, nil, nil},
		"the only one is the former":         {10, []version{f}, nil, 1, []bool{true}, nil},
		"the only one is new":                {10, []version{n}, nil, 0, []bool{false}, nil},
		"one of four":                        {25, []version{f, n, f, f}, nil, 0, []bool{false, false, false, false}, nil},
		"half of three is two":               {50, []version{f, n, f}, nil, 1, []bool{true, false, true}, nil},
		"one that drains does not count":     {25, []version{f, n, f, f}, []state{idle, draining, busy, idle}, 1, []bool{true, false, true, true}, nil},
		"a third version goes first":         {25, []version{f, o, f, f}, nil, 1, []bool{false, true, false, false}, nil},
		"more new ones than asked remain":    {10, []version{n, n, f}, nil, 0, []bool{false, false, false}, nil},
		"the place of a replaced one counts": {50, []version{f, n}, nil, 1, []bool{true, false}, []string{"gone"}},
		"also while it drains":               {50, []version{f, n, f}, []state{idle, idle, draining}, 1, []bool{true, false, true}, []string{"w2"}},
		"once while it looks alive":          {50, []version{f, n}, nil, 0, []bool{false, false}, []string{"w0"}},
	} {
		members := make([]member, len(test.versions))
		for i := range members {
			members[i].id, members[i].state = fmt.Sprint("w", i), idle
			if test.states != nil {
				members[i].state = test.states[i]
			}
		}
		missing := planCanary(test.percent, members, test.versions, test.replaced)
		if missing != test.missing {
			t.Errorf("%s: got %d missing, want %d", name, missing, test.missing)
		}
		for i, w := range members {
			if w.stale != test.stale[i] {
				t.Errorf("%s: worker %d: got stale %t, want %t", name, i, w.stale, test.stale[i])
			}
		}
	}
}

func TestDecideDuringACanary(t *testing.T) {
	const long = time.Hour
	marked := func(all []member, mark func(*member), which ...int) []member {
		for _, i := range which {
			mark(&all[i])
		}
		return all
	}
	canary, bad := func(w *member) { w.canary = true }, func(w *member) { w.bad, w.stale = true, true }
	checkDecisions(t, map[string]decisionTest{
		"no more canaries are started than are missing": {
			e: ep(requests(1), bounds(0, 9)), s: sample{queued: 5, machines: 1, canaries: 1},
			want: decision{wanted: 5, start: 1, reason: registry.ScalingRequests},
		},
		"a canary is stopped last": {
			e: ep(bounds(1, 9)), s: sample{machines: 1, members: marked(crew(long, idle, idle), canary, 0)},
			want: decision{wanted: 1, drain: []string{"w1"}, reason: registry.ScalingIdle},
		},
		"one makes room while more are wanted": {
			e: ep(requests(1), bounds(0, 2)), s: sample{queued: 5, running: 2, allRunning: 2, machines: 1, canaries: 1, members: stale(crew(long, busy, busy))},
			want: decision{wanted: 2, drain: []string{"w0"}, reason: registry.ScalingReplace},
		},
		"those of a version that was rolled back go at once": {
			e: ep(bounds(3, 9)), s: sample{running: 2, allRunning: 2, machines: 1, members: marked(crew(long, busy, idle, busy), bad, 0, 1)},
			want: decision{wanted: 3, drain: []string{"w1", "w0"}, reason: registry.ScalingReplace},
		},
	})
}

// versions are the workers that run, by version.
func (s *env) versions(version int) (ids []string) {
	s.t.Helper()
	pods, err := s.registry.Pods.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range pods {
		if p.Endpoint == "ep" && p.Status == pod.Running && p.EndpointVersion == version {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// canary starts four workers and changes their command, so that one tries it.
func (s *env) canary() *events.Log {
	s.t.Helper()
	s.endpoint("ep", bounds(4, 9), func(e *endpoint.Endpoint) { e.CanaryPercent = 25 })
	s.autoscaler(s.engine("machine"))
	s.runs("ep", map[int]int{1: 4})
	for _, id := range s.versions(1) { // else the first of them is silent while it drains
		testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerIdle) })
	}
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	s.runs("ep", map[int]int{1: 3, 2: 1})
	return s.events()
}

// ended waits until the canary has ended so.
func (s *env) canaryEnds(want string) (e endpoint.Endpoint) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		var err error
		if e, err = s.registry.Endpoints.Find(s.t.Context(), "ep"); err != nil || e.Canary.State != want {
			return fmt.Sprintf("got canary %s: %s, %v, want %s", e.Canary.State, e.Canary.Text, err, want)
		}
		return ""
	})
	return e
}

func TestACanaryThatIsNoWorseIsPromoted(t *testing.T) {
	s := newEnv(t)
	log := s.canary()
	// A worker of the former version that dies is replaced by one of the former version.
	victim := s.versions(1)[0]
	if _, err := s.registry.Pods.Move(t.Context(), victim, pod.Exit, "killed", s.queue.Now(), nil); err != nil {
		t.Fatal(err)
	}
	s.runs("ep", map[int]int{1: 3, 2: 1})
	at, _ := parsePlace("ep", victim)
	at.generation++
	if p := s.status(at.id("ep"), pod.Running); p.EndpointVersion != 1 || slices.Contains(p.Spec.Command, "--new") {
		t.Errorf("got version %d of %v, want the former one", p.EndpointVersion, p.Spec.Command)
	}
	for n := range minCanaryJobs {
		s.writeEnd(log, n, ended(s.versions(1)[n%3], ""))
		s.writeEnd(log, minCanaryJobs+n, ended(s.versions(2)[0], ""))
	}
	s.runs("ep", map[int]int{2: 4})
	if e := s.canaryEnds(endpoint.CanaryPromoted); e.Canary.Text != "0 of 20 jobs failed on version 2, 0 of 20 on version 1" || e.ReleaseVersion() != 2 {
		t.Errorf("got %+v of release %d, want 2, with the numbers", e.Canary, e.ReleaseVersion())
	}
}

// With one worker fewer the share is one fewer: the successor is a canary all the same.
func TestACanaryReachesAShareThatIsRoundedUp(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	s.endpoint("ep", bounds(3, 3), func(e *endpoint.Endpoint) { e.CanaryPercent = 50 })
	s.autoscaler(e)
	s.runs("ep", map[int]int{1: 3})
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"worker", "--new"} })
	s.runs("ep", map[int]int{1: 1, 2: 2})
	if pods, err := s.registry.Pods.List(t.Context()); err != nil || len(pods) != 5 {
		t.Errorf("got %d pods, %v, want 5: each replaced once", len(pods), err)
	}
}

func TestACanaryThatFailsIsRolledBack(t *testing.T) {
	s := newEnv(t)
	log := s.canary()
	bad := s.versions(2)[0]
	for n := range 3 {
		s.writeEnd(log, n, ended(bad, "RuntimeError: no such layer"))
	}
	e := s.canaryEnds(endpoint.CanaryRolledBack)
	if e.Canary.Text != "3 of 3 jobs failed on version 2, 0 of 0 on version 1" || e.ReleaseVersion() != 1 || slices.Contains(e.Fleet.Command, "--new") {
		t.Errorf("got %+v of release %d and command %v, want the former one", e.Canary, e.ReleaseVersion(), e.Fleet.Command)
	}
	s.status(bad, pod.Terminated)
	s.runs("ep", map[int]int{1: 4})
}
