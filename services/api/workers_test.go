package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestLivingWorkersAreListedForThoseWhoMayRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	reader, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "ep"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []registry.Worker{
		{ID: "b", Endpoint: "ep", State: registry.WorkerIdle, Concurrency: 2, Native: true, Draining: true},
		{ID: "a", Endpoint: "ep", State: registry.WorkerRunning, Running: []string{"j"}, Host: registry.Host{Name: "m", Version: "1.2.3"}},
		{ID: "a", Endpoint: "other", State: registry.WorkerUnhealthy},
	} {
		if err := s.registry.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the API's cache has all beats", func() bool {
		var v api.LivingWorkers
		s.get(adminKey, "/v1/workers", &v)
		return len(v.Workers) == 3
	})
	for path, want := range map[string]struct {
		key    string
		ids    []string
		cursor string
	}{
		"/v1/workers":                              {adminKey, []string{"ep/a", "ep/b", "other/a"}, ""},
		"/v1/workers?limit=2":                      {adminKey, []string{"ep/a", "ep/b"}, "ep/b"},
		"/v1/workers?limit=2&cursor=ep%2Fb":        {adminKey, []string{"other/a"}, ""},
		"/v1/workers?endpoint=ep":                  {adminKey, []string{"ep/a", "ep/b"}, ""},
		"/v1/workers?id=a":                         {adminKey, []string{"ep/a", "other/a"}, ""},
		"/v1/workers?id=a&endpoint=other":          {adminKey, []string{"other/a"}, ""},
		"/v1/workers?id=nobody":                    {adminKey, nil, ""},
		"/v1/workers?limit=1000":                   {reader, []string{"ep/a", "ep/b"}, ""},
		"/v1/workers?endpoint=other&limit=1":       {reader, nil, ""},
		"/v1/workers?endpoint=nothing-of-the-name": {adminKey, nil, ""},
	} {
		var v api.LivingWorkers
		got := s.get(want.key, path, &v)
		var ids []string
		for _, w := range v.Workers {
			ids = append(ids, w.Endpoint+"/"+w.ID)
		}
		if got.status != http.StatusOK || !slices.Equal(ids, want.ids) || v.Cursor != want.cursor {
			t.Errorf("%s: got %s, want %v and the cursor %q", path, got.raw, want.ids, want.cursor)
		}
	}
	var v api.LivingWorkers
	s.get(adminKey, "/v1/workers?endpoint=ep", &v)
	a, b := v.Workers[0], v.Workers[1]
	if a.State != "running" || a.Protocol != "http" || !slices.Equal(a.Running, []string{"j"}) || a.Host.Name != "m" || a.Host.Version != "1.2.3" || a.SeenAt == "" {
		t.Errorf("got %+v", a)
	}
	if b.Protocol != "nats" || !b.Draining || b.Concurrency != 2 || b.Running == nil || b.Host.GPUs == nil {
		t.Errorf("got %+v", b)
	}
	for path, status := range map[string]int{"/v1/workers?limit=0": 400, "/v1/workers?cursor=x": 400, "/v1/workers?endpoint=": 400, "/v1/workers?endpoint=a.b": 404} {
		if got := s.get(adminKey, path, nil); got.status != status {
			t.Errorf("%s: got %d %s, want %d", path, got.status, got.raw, status)
		}
	}
	if got := s.get("nobody", "/v1/workers", nil); got.status != http.StatusUnauthorized {
		t.Errorf("no key: got %d %s", got.status, got.raw)
	}
}

// A worker that was asked to drain is shown as draining before its next heartbeat.
func TestWorkersDrainFromTheRequestOn(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	asked := func(endpoint, id, driver string, status pod.Status, at time.Time) pod.Pod {
		return pod.Pod{ID: id, Endpoint: endpoint, Driver: pod.Driver(driver), Status: status, Drain: pod.Drain{At: at}}
	}
	living := []registry.Worker{
		{Endpoint: "ep", ID: "asked", Started: now},
		{Endpoint: "ep", ID: "asked-before-its-start", Started: now},
		{Endpoint: "ep", ID: "not-asked", Started: now},
		{Endpoint: "other", ID: "asked", Started: now},
		{Endpoint: "ep", ID: "ended", Started: now},
	}
	pods := []pod.Pod{
		asked("ep", "asked", "", pod.Running, now.Add(time.Second)), asked("ep", "asked-before-its-start", "", pod.Running, now.Add(-time.Second)),
		asked("ep", "not-asked", "", pod.Running, time.Time{}),
		{},
		asked("ep", "ended", "", pod.Terminated, now.Add(time.Second)),
	}
	for i, want := range []bool{true, false, false, false, false} {
		if got := livingOf(living[i], pods[i]).Draining; got != want {
			t.Errorf("%s/%s: got %v, want %v", living[i].Endpoint, living[i].ID, got, want)
		}
	}
}

// A worker that speaks HTTP says neither when it started nor what its machine is: the
// record of its pod does.
func TestAWorkerOverHTTPIsShownWithItsStartAndMachine(t *testing.T) {
	t.Parallel()
	s := start(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	machine := pod.Machine{
		Hostname: "m", OS: "linux", Arch: "amd64", CPU: pod.CPU{Model: "EPYC", Threads: 8}, MemoryGB: 64, GPUDriver: "570",
		GPUs: []pod.GPU{{Name: "H100", UUID: "GPU-1", MemoryGB: 80}},
	}
	if _, err := s.registry.Pods.Appear(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep", Machine: machine}, now, now); err != nil {
		t.Fatal(err)
	}
	for _, w := range []registry.Worker{{ID: "w1", Endpoint: "ep"}, {ID: "w1", Endpoint: "other", Started: now.Add(time.Second)}} {
		if err := s.registry.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	var v api.LivingWorkers
	testenv.Eventually(t, "both workers have their starts", func() bool {
		s.get(adminKey, "/v1/workers", &v)
		return len(v.Workers) == 2 && v.Workers[0].StartedAt == api.FormatTime(now) && v.Workers[1].StartedAt == api.FormatTime(now.Add(time.Second))
	})
	want := api.WorkerHost{
		Name: "m", OS: "linux", Arch: "amd64", CPUModel: "EPYC", CPUs: 8, MemoryBytes: 64 << 30, GPUDriver: "570",
		GPUs: []api.WorkerGPU{{Name: "H100", UUID: "GPU-1", MemoryBytes: 80 << 30}},
	}
	if diff := cmp.Diff(want, v.Workers[0].Host); diff != "" {
		t.Error(diff)
	}
}

// readAll follows events of all endpoints, with a key.
func (s *env) readAll(path, key string) *eventReader {
	s.t.Helper()
	all := *s
	all.base = strings.TrimSuffix(s.base, "/v2")
	return all.readEventsAs(key, path, "")
}

func TestEventsOfAllEndpointsAreThoseThatTheKeyMayRead(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	second, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "second"})
	if err != nil {
		t.Fatal(err)
	}
	reader, _, err := s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "second"}}})
	if err != nil {
		t.Fatal(err)
	}
	both, one := s.readAll("/v1/events", adminKey), s.readAll("/v1/events?type=job.failed", reader)
	both.wantBegun()
	one.wantBegun()
	life := lifeOf("first")
	other := slices.Clone(lifeOf("other"))
	gone := slices.Clone(other)
	for i := range other {
		other[i].Endpoint, gone[i].Endpoint = "second", "gone" // of an endpoint that was deleted
	}
	appendTo(t, log, life...)
	appendTo(t, log, gone...)
	appendTo(t, log, other...)
	both.wantNames("1.4093 job.queued first", "1.4094 job.started first", "1 job.failed first", "3.4093 job.queued other", "3.4094 job.started other", "3 job.failed other")
	one.wantNames("3 job.failed other")
	past := s.readAll("/v1/events?cursor=0&follow=false&type=job.queued", adminKey)
	past.wantBegun()
	past.wantNames("1.4093 job.queued first", "3.4093 job.queued other")
	past.want("event: end|data: {}")

	if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), second); err != nil { // it may be refused yet
		t.Fatal(err)
	}
	late := lifeOf("late")
	for i := range late {
		late[i].Endpoint = "second"
	}
	appendTo(t, log, late...)
	one.wantNames("4 job.failed late")
}

// A job whose worker fell silent does not look as if it ran.
func TestStatusSaysThatAWorkerWasLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	lease := s.take()
	beat := registry.Worker{ID: lease.Job.Worker, Endpoint: "ep", State: registry.WorkerRunning, Running: []string{id}}
	if err := s.registry.Workers.Beat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	var got answer
	testenv.Eventually(t, "its worker is lost", func() bool {
		got = s.do("GET", "/ep/status/"+id, "")
		return got.body["workerLost"] != nil
	})
	text, _ := got.body["workerLost"].(string)
	if got.body["status"] != "IN_PROGRESS" || !strings.HasPrefix(text, "worker "+lease.Job.Worker+" was last heard of ") {
		t.Errorf("got %s", got.raw)
	}
	if health := s.do("GET", "/ep/health", ""); !strings.Contains(health.raw, `"inProgress":1,"inQueue":0,"retried":0,"workerLost":1`) {
		t.Errorf("health: got %s", health.raw)
	}
	if reason := s.explained(id).Reason; !strings.HasPrefix(reason, "waiting for a worker to take it over: worker "+lease.Job.Worker+" was last heard of ") {
		t.Errorf("explain: got %q", reason)
	}
	if err := s.registry.Workers.Beat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "its worker is back", func() bool {
		got = s.do("GET", "/ep/status/"+id, "")
		return got.body["workerLost"] == nil
	})
}
