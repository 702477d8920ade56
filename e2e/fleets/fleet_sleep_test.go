package fleets

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flightline/shared/api"
	"flightline/shared/pod"
	"flightline/shared/testenv/program"
)

// modelServer is a stand-in for a model server that sleeps. Asleep it answers no request.
type modelServer struct {
	*httptest.Server
	mu            sync.Mutex
	asleep, stuck bool // stuck: it wakes no more
	sleeps, wakes int
}

func newModelServer(t *testing.T) *modelServer {
	t.Helper()
	m := &modelServer{}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.URL.Path == "/sleep":
		m.asleep, m.sleeps = true, m.sleeps+1
	case r.URL.Path == "/wake_up" && m.stuck:
		http.Error(w, "out of memory", http.StatusInternalServerError)
		m.stuck = false
	case r.URL.Path == "/wake_up":
		m.asleep, m.wakes = false, m.wakes+1
	case m.asleep:
		http.Error(w, "asleep", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"object":"list"}`)
	}
}

// count returns how often it was put to sleep and woken.
func (m *modelServer) count() (sleeps, wakes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sleeps, m.wakes
}

// sleeper makes an endpoint whose worker passes jobs on to the server.
func (f *fleetSite) sleeper(t *testing.T, id, data string, m *modelServer, change map[string]any) {
	t.Helper()
	body := map[string]any{
		"command": []string{
			program.Build(t, "flightline/services/flightline"), "worker", id, "--data", data,
			"--openai-upstream", m.URL, "--upstream-health", "/v1/models", "--sleep-path", "/sleep?level=1", "--wake-path", "/wake_up",
		},
		"workersMax": 1, "idleTimeout": 1, "sleepTimeout": 600,
	}
	maps.Copy(body, change)
	f.endpoint(id, body)
}

// models submits a job that asks the server for its models, and waits for its end.
func (f *fleetSite) models(id string) (job, worker string) {
	f.t.Helper()
	var answer struct{ ID string }
	f.rest(http.MethodPost, "/v2/"+id+"/run", map[string]any{"input": map[string]any{"openai_route": "/v1/models"}}, &answer)
	f.status(id, answer.ID, "COMPLETED")
	var done struct{ WorkerID string }
	f.rest(http.MethodGet, "/v2/"+id+"/status/"+answer.ID, nil, &done)
	return answer.ID, done.WorkerID
}

// startAsleep starts a dev with the endpoint chat, runs a job there, and waits until its
// worker sleeps.
func startAsleep(t *testing.T) (f *fleetSite, d *program.Process, m *modelServer, worker string) {
	t.Helper()
	s := program.New(t)
	f, d = fleetDevOf(t, s)
	m = newModelServer(t)
	f.sleeper(t, "chat", filepath.Join(s.Dir, ".flightline"), m, nil)
	_, worker = f.models("chat")
	f.sleeps(worker)
	return f, d, m, worker
}

// sleeps waits until a pod's worker sleeps.
func (f *fleetSite) sleeps(id string) {
	f.t.Helper()
	f.await("sleep of "+id, func() string {
		p, err := f.registry.Pods.Get(f.t.Context(), id)
		if err == nil && p.Sleep.Sleeps() && !p.Sleep.Asleep.IsZero() {
			return ""
		}
		return fmt.Sprintf("%+v (%s), %v", p.Sleep, p.Change, err)
	})
}

// TestAWorkerSleepsUntilAJobWakesIt shows IDLE, SLEEPING and IDLE again: no second worker
// is started, and the server is awake whenever it is asked.
func TestAWorkerSleepsUntilAJobWakesIt(t *testing.T) {
	t.Parallel()
	f, d, m, worker := startAsleep(t)
	if sleeps, _ := m.count(); sleeps != 1 {
		t.Errorf("got %d sleeps of the server, want 1", sleeps)
	}
	var health api.Health
	f.rest(http.MethodGet, "/v2/chat/health", nil, &health)
	if w := health.Workers; w.Sleeping != 1 || w.Idle+w.Ready+w.Running+w.Initializing != 0 {
		t.Errorf("got %+v, want one worker that sleeps", w)
	}
	var one api.Pod
	if f.rest(http.MethodGet, "/v1/pods/"+worker, nil, &one); one.Sleep == nil || one.Sleep.State != pod.Sleeping || one.DesiredStatus != pod.Running {
		t.Errorf("got %s, %+v, want a pod that runs and sleeps", one.DesiredStatus, one.Sleep)
	}
	id, second := f.models("chat")
	if _, wakes := m.count(); second != worker || wakes != 2 { // the first was at its start
		t.Errorf("got %s after %d wakes, want %s, woken once", second, wakes-1, worker)
	}
	var x api.Explanation
	if f.rest(http.MethodGet, "/v2/chat/explain/"+id, nil, &x); x.ColdStart != nil {
		t.Errorf("got %+v, want no cold start", x.ColdStart)
	}
	d.Stop(program.StopWithin)
}

// TestAWorkerThatDoesNotWakeIsReplaced: its job is run by another one.
func TestAWorkerThatDoesNotWakeIsReplaced(t *testing.T) {
	t.Parallel()
	f, d, m, worker := startAsleep(t)
	m.mu.Lock()
	m.stuck = true
	m.mu.Unlock()
	id, second := f.models("chat")
	if second == worker {
		t.Errorf("job %s: got it from %s, which does not wake", id, worker)
	}
	p, err := f.registry.Pods.Get(t.Context(), worker)
	if err != nil || p.Status != pod.Exited || !strings.Contains(p.Change, "could not wake: POST /wake_up: the model server answered 500 Internal Server Error: out of memory") {
		t.Errorf("got %s (%s), %v, want why it ended", p.Status, p.Change, err)
	}
	d.Stop(program.StopWithin)
}
