package autoscaler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestFindOrphans(t *testing.T) {
	const lease = 30 * time.Second
	ago := func(d time.Duration) map[job.ID]time.Time { return map[job.ID]time.Time{"a": noon.Add(-d)} }
	held := func(jobs ...string) map[job.ID]bool { // by one of two workers
		return jobsHeldBy([]registry.Worker{{ID: "idle"}, {ID: "w", Running: jobs}})
	}
	for name, tt := range map[string]struct {
		out   []job.ID
		named map[job.ID]bool
		since map[job.ID]time.Time
		want  orphans
		watch int // how many are watched from now on
	}{
		"none":                   {},
		"a living worker has it": {out: []job.ID{"a"}, named: held("a")},
		"it has it again":        {out: []job.ID{"a"}, named: held("a"), since: ago(time.Hour)},
		"it was handed out a moment ago": {
			out: []job.ID{"a"}, named: held(), watch: 1,
		},
		"its worker was just heard for the last time": {
			out: []job.ID{"a"}, watch: 1,
		},
		"no heartbeat has named it for almost as long as one may not": {
			out: []job.ID{"a"}, named: held("b"), since: ago(unnamedTimeout - 1), watch: 1,
		},
		"its worker lives and does not know it": {
			out: []job.ID{"a", "b"}, named: held("b"), since: ago(unnamedTimeout), want: orphans{count: 1}, watch: 1,
		},
		"it waits for the end of its lease": {
			out: []job.ID{"a"}, since: ago(lease), want: orphans{count: 1}, watch: 1,
		},
		"and then for a worker": {
			out: []job.ID{"a", "b"}, since: ago(lease + 7*time.Second), want: orphans{count: 1, waited: 7 * time.Second}, watch: 2,
		},
		"it has ended meanwhile": {since: ago(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			got, next := findOrphans(tt.out, tt.named, unnamedTimeout, tt.since, lease, noon)
			if got != tt.want || len(next) != tt.watch {
				t.Errorf("got %+v and %v watched, want %+v and %d", got, next, tt.want, tt.watch)
			}
			for id, first := range next {
				if was, known := tt.since[id]; known && !first.Equal(was) || !known && !first.Equal(noon) {
					t.Errorf("job %s: got it watched since %s", id, first)
				}
			}
		})
	}
}

func TestDecideAboutOrphans(t *testing.T) {
	const long = time.Hour
	checkDecisions(t, map[string]decisionTest{
		"a job whose worker is lost starts another at once": {
			e: ep(), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1, machines: 1},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"which stays, though it idles until the lease is over": {
			e: ep(), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1, machines: 1, members: crew(20*time.Second, idle)},
			want: decision{wanted: 1},
		},
		"one is enough while none can be taken over": {
			e: ep(), s: sample{orphans: orphans{count: 3}, running: 3, allRunning: 3, machines: 1, members: crew(long, starting)},
			want: decision{wanted: 1},
		},
		"three that nobody takes over double the fleet": {
			e: ep(), s: sample{orphans: orphans{count: 2, waited: 5 * time.Second}, running: 3, allRunning: 3, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 2, start: 1, reason: registry.ScalingDelay},
		},
		"and no more than the maximum, either": {
			e: ep(bounds(0, 1)), s: sample{orphans: orphans{count: 2, waited: time.Minute}, running: 3, allRunning: 3, machines: 1, members: crew(long, busy)},
			want: decision{wanted: 1},
		},
		"nor more than there are jobs": {
			e: ep(bounds(0, 9)), s: sample{orphans: orphans{count: 1, waited: time.Minute}, running: 4, allRunning: 4, machines: 1, members: crew(long, busy, busy, busy)},
			want: decision{wanted: 4, start: 1, reason: registry.ScalingDelay},
		},
		"a lost worker's job, and a draining worker's": {
			e: ep(), s: sample{orphans: orphans{count: 1}, running: 2, allRunning: 2, machines: 1, members: crew(long, draining)},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingFromZero},
		},
		"lost workers' jobs while paused": {
			e: ep(paused), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1, machines: 1}, want: decision{reason: registry.ScalingPaused},
		},
		"lost workers' jobs of a fleet that is off": {
			e: ep(bounds(0, 0)), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1, machines: 1}, want: decision{},
		},
		"requests: a lost worker's job runs": {
			e: ep(requests(1)), s: sample{running: 1, allRunning: 1, machines: 1},
			want: decision{wanted: 1, start: 1, reason: registry.ScalingRequests},
		},
		"external: a lost worker's job": {
			e: ep(elsewhere), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1},
			want: decision{wanted: 1, reason: registry.ScalingFromZero},
		},
		"external: and the worker for it is no longer there": {
			e: ep(elsewhere), s: sample{orphans: orphans{count: 1}, running: 1, allRunning: 1}, before: 1, want: decision{wanted: 1},
		},
	})
}

// take picks up the next job of the endpoint as a worker that says nothing.
func (s *env) take(e endpoint.Endpoint, worker string) (lost func()) {
	s.t.Helper()
	_, q := s.peer()
	consumer, err := q.Consume(s.t.Context(), e, worker, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	defer consumer.Close()
	lease, err := consumer.Next(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := lease.Release(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Somebody had workers of his own, and they gave their jobs back. A leader that
// has just taken over counts none as waiting.
func TestJobsThatWereGivenBackAskForAWorker(t *testing.T) {
	s := newEnv(t)
	given, low, off := s.endpoint("given"), s.endpoint("low"), s.endpoint("off", bounds(0, 0), func(e *endpoint.Endpoint) { e.NoWorkers = true })
	outside, stopped, forgot := s.endpoint("outside", elsewhere), s.endpoint("stopped", paused), s.endpoint("forgot")
	for _, e := range []endpoint.Endpoint{given, low, off, outside, stopped} {
		s.submit(e, e.ID == low.ID)
		s.take(e, "own")()
	}
	s.submit(forgot, false) // its worker lives, and does not know that it has it
	s.take(forgot, "own")
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "own", Endpoint: "forgot", State: registry.WorkerIdle}); err != nil {
		t.Fatal(err)
	}
	s.update("stopped", func(e *endpoint.Endpoint) { e.PausedUntil = time.Now().Add(time.Hour) })
	s.autoscaler(s.engine("machine"))
	s.status("given-0-1", pod.Running)
	s.status("forgot-0-1", pod.Running)
	testenv.EventuallyNone(s.t, func() string { return s.decided("outside", 1, registry.ScalingFromZero) })
	testenv.EventuallyNone(s.t, func() string { return s.decided("stopped", 0, registry.ScalingPaused) })
	for _, id := range []string{"low", "off"} {
		if missing := s.decided(id, 0, registry.ScalingSteady); missing != "" {
			t.Error(missing)
		}
	}
}

// A worker that an owner started has the jobs, and not one of the fleet that looks idle.
func TestJobsOfOtherWorkersKeepNoIdleWorker(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep", bounds(1, 1))
	id := s.submit(e, false)
	s.take(e, "own")
	testenv.Background(t, func(ctx context.Context) error {
		each(ctx, time.Second, func() {
			_ = s.registry.Workers.Beat(ctx, registry.Worker{ID: "own", Endpoint: "ep", State: registry.WorkerRunning, Running: []string{string(id)}})
		})
		return nil
	})
	s.autoscaler(s.engine("machine"))
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	s.update("ep", bounds(0, 1))
	s.status("ep-0-1", pod.Terminated)
}

// Heartbeats between two looks that are far apart are not known.
func TestAnOutageForgetsWhichJobsWereUnnamed(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep")
	s.submit(e, false)
	s.take(e, "own")
	l, m, v := s.leader(), &endpointState{}, &view{now: s.queue.Now()}
	for _, look := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {unnamedTimeout - 1, 0}, {1 + watchTimeout + 1, 0}, {unnamedTimeout - 1, 0}, {1, 1}, {externalInterval, 1}} {
		v.now = v.now.Add(look.after)
		got, err := l.orphans(t.Context(), v, e, m, queue.Stats{Running: 1})
		if err != nil || got.count != look.want {
			t.Fatalf("%s later: got %+v, %v, want %d", look.after, got, err, look.want)
		}
	}
}

// Nothing has to be waited for once the last worker has ended: a heartbeat may not have named
// what it had, or it gave that back as it ended.
func TestTheLastWorkersEndAsksForAnotherAtOnce(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep")
	s.submit(e, false)
	s.take(e, "ep-0-1")
	now := s.queue.Now()
	for name, tt := range map[string]struct {
		status  pod.Status
		changed time.Time
		workers []registry.Worker
		want    int
	}{
		"at once":                    {status: pod.Exited, changed: now, want: 1},
		"as it was not needed":       {status: pod.Terminated, changed: now, want: 1},
		"a moment ago":               {status: pod.Exited, changed: now.Add(1 - unnamedTimeout), want: 1},
		"others may have come since": {status: pod.Exited, changed: now.Add(-unnamedTimeout)},
		"the clock was set back":     {status: pod.Exited, changed: now.Add(time.Hour)},
		"it begins":                  {status: pod.Running, changed: now},
		"another lives":              {status: pod.Exited, changed: now, workers: []registry.Worker{{ID: "ep-1-1"}}},
	} {
		v := &view{
			now: now, workersOf: map[string][]registry.Worker{"ep": tt.workers},
			fleets: map[string][]pod.Pod{"ep": {{ID: "ep-0-1", Endpoint: "ep", Status: tt.status, Changed: tt.changed}}},
		}
		got, err := s.leader().orphans(t.Context(), v, e, &endpointState{}, queue.Stats{Running: 1})
		if err != nil || got.count != tt.want {
			t.Errorf("%s: got %+v, %v, want %d", name, got, err, tt.want)
		}
	}
}

// decided returns "" if the last decision about the endpoint is this one.
func (s *env) decided(id string, wanted int, reason string) string {
	d, err := s.registry.Scaling.Last(s.t.Context(), id)
	if err == nil && d.Wanted == wanted && d.Reason == reason {
		return ""
	}
	return fmt.Sprintf("%s: got %d wanted, %s: %s, %v; want %d, %s", id, d.Wanted, d.Reason, d.Text, err, wanted, reason)
}
