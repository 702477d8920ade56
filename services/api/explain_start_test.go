package api

import (
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// A waiting job shows how far the worker has come that starts for it, and a running one
// how that went.
func TestExplainTellsOfTheColdStart(t *testing.T) {
	t.Parallel()
	s := start(t)
	before := s.queue.Now().Add(-time.Minute)
	s.pod("w0", pod.Phases{Starting: before, Loading: before.Add(time.Second), Ready: before.Add(8 * time.Second)})
	id := s.submit()
	now := s.queue.Now().Add(time.Second)
	s.pod("w", pod.Phases{Pulling: now, Starting: now.Add(2 * time.Second), Loading: now.Add(3 * time.Second)})
	var v api.Explanation
	testenv.Eventually(t, "the worker loads", func() bool {
		v = s.explained(id)
		return len(v.Starting) == 1 && v.ColdStart == nil
	})
	if got := v.Starting[0]; got.WorkerID != "w" || got.Phase != pod.Loading || got.UsualMs != 7000 || got.Since == "" {
		t.Errorf("got %+v, want that w loads, usually for 7 s", got)
	}
	var living api.LivingWorkers
	if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: "w", Endpoint: "ep", State: registry.WorkerInitializing}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the worker is listed", func() bool {
		s.get(adminKey, "/v1/workers?id=w", &living)
		return len(living.Workers) == 1
	})
	if got := living.Workers[0].Startup; got == nil || got.Phase != pod.Loading || !got.LoadingAt.Equal(now.Add(3*time.Second).Truncate(time.Millisecond)) || !got.ReadyAt.IsZero() {
		t.Errorf("got %+v, want the phases of its start", got)
	}
}

// A start that loads a model from elsewhere says so.
func TestAStartOnAMachineWithoutTheModel(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	starting := func(missing ...string) workerStart {
		return workerStart{id: "w", phase: pod.Loading, since: now.Add(-90 * time.Second), usual: 20 * time.Second, missing: missing}
	}
	for want, in := range map[string][]workerStart{
		"1 worker has been loading for 1m30s, usually 20s":                                                    {starting()},
		"1 worker has been loading for 1m30s, usually 20s (its machine did not have a/b, c/d)":                {starting("a/b", "c/d")},
		"2 workers have been loading, the first for 1m30s, usually 20s (some machines did not have a/b)":      {starting(), starting("a/b")},
		"3 workers have been loading, the first for 1m30s, usually 20s (some machines did not have a/b, c/d)": {starting("c/d"), starting("a/b"), starting("a/b")},
	} {
		if got := startsText(in, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := startingOf([]workerStart{starting("a/b")}); len(got) != 1 || len(got[0].MissingModels) != 1 {
		t.Errorf("got %+v, want the missing model", got)
	}
}

func TestTheColdStartOfAJob(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0).UTC() }
	warm := pod.Pod{ID: "w", Endpoint: "ep", Status: pod.Running, Phases: pod.Phases{Starting: at(1), Loading: at(2), Ready: at(5)}}
	cold := warm
	cold.Phases = pod.Phases{Starting: at(11), Loading: at(12), Ready: at(15)}
	ended := cold
	ended.Status = pod.Exited
	elsewhere := cold
	elsewhere.Endpoint = "other"
	own := pod.Pod{ID: "w", Endpoint: "ep", Status: pod.Running}
	ran := job.Job{Endpoint: "ep", Worker: "w", Status: job.Completed, Submitted: at(10)}
	waits := ran
	waits.Status = job.InQueue
	for name, tc := range map[string]struct {
		job  job.Job
		pod  pod.Pod
		cold bool
	}{
		"it started for it":     {ran, cold, true},
		"it has ended since":    {ran, ended, true},
		"it was there":          {ran, warm, false},
		"another endpoint's":    {ran, elsewhere, false},
		"its owner started it":  {ran, own, false},
		"lost, and waits again": {waits, cold, false},
	} {
		got := coldStart(&tc.job, registry.KnownPods{All: []pod.Pod{tc.pod}}.Find(tc.job.Endpoint, tc.job.Worker))
		if (got != nil) != tc.cold {
			t.Errorf("%s: got %+v, want one: %v", name, got, tc.cold)
		}
		if got != nil && got.Phases() != tc.pod.Phases {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.pod.Phases)
		}
	}
}

// pod adds a worker's pod that a driver starts.
func (s *env) pod(id string, phases pod.Phases) {
	s.t.Helper()
	now := s.queue.Now()
	if err := s.registry.Pods.Create(s.t.Context(), pod.Pod{ID: id, Endpoint: "ep", Status: pod.Running, Driver: pod.Process, Created: now, Changed: now, Phases: phases}); err != nil {
		s.t.Fatal(err)
	}
}
