package fleets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// fleetWithin bounds what a fleet should have done by then on a loaded machine.
const fleetWithin = 90 * time.Second

// fleetSite is a running system, and how to look at it.
type fleetSite struct {
	t        *testing.T
	url, key string
	worker   string // the program
	registry *registry.Registry
}

// rest calls the API, which must answer 2xx, and decodes what it says.
func (f *fleetSite) rest(method, path string, body, into any) {
	f.t.Helper()
	status, text := f.ask(method, path, body)
	if status/100 != 2 {
		f.t.Fatalf("%s %s: got %d: %s", method, path, status, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			f.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
}

// ask calls the API and returns what it answers.
func (f *fleetSite) ask(method, path string, body any) (status int, text []byte) {
	f.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, bytes.NewReader(data))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, text
}

// endpoint makes one whose fleet runs fleetworker.
func (f *fleetSite) endpoint(id string, change map[string]any) {
	f.t.Helper()
	body := map[string]any{
		"id": id, "driver": "process", "command": []string{f.worker}, "env": map[string]string{asFleetWorker: "yes"},
		"workersMin": 0, "workersMax": 3, "idleTimeout": 2, "scalerType": "QUEUE_DELAY", "scalerValue": 1,
	}
	maps.Copy(body, change)
	f.rest(http.MethodPost, "/v1/endpoints", body, nil)
}

func (f *fleetSite) submit(id string, n, ms int, policy map[string]any) []string {
	f.t.Helper()
	var jobs []string
	for range n {
		var answer struct{ ID string }
		f.rest(http.MethodPost, "/v2/"+id+"/run", map[string]any{"input": map[string]int{"ms": ms}, "policy": policy}, &answer)
		jobs = append(jobs, answer.ID)
	}
	return jobs
}

// await waits until hold says nothing is missing.
func (f *fleetSite) await(what string, missing func() string) {
	f.t.Helper()
	end := time.Now().Add(fleetWithin)
	for {
		still := missing()
		if still == "" {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%s: got %s", what, still)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// completed waits for the jobs, and returns how many each worker did.
func (f *fleetSite) completed(id string, jobs []string) map[string]int {
	f.t.Helper()
	defer func() {
		if f.t.Failed() {
			_, all := f.pods(id)
			f.t.Logf("decisions:\n%s\npods: %+v", f.decisions(id), all)
		}
	}()
	by := map[string]int{}
	for _, job := range jobs {
		var got struct {
			Status string
			Output struct{ Worker string }
		}
		f.await("job "+job, func() string {
			f.rest(http.MethodGet, "/v2/"+id+"/status/"+job, nil, &got)
			if got.Status == "COMPLETED" {
				return ""
			}
			return got.Status
		})
		by[got.Output.Worker]++
	}
	return by
}

// pods returns the endpoint's pods that should run, and all.
func (f *fleetSite) pods(id string) (running, all []pod.Pod) {
	f.t.Helper()
	pods, err := f.registry.Pods.List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range pods {
		if p.Endpoint != id {
			continue
		}
		all = append(all, p)
		if p.Status == pod.Running {
			running = append(running, p)
		}
	}
	return running, all
}

// size waits until the fleet has n workers.
func (f *fleetSite) size(id string, n int) {
	f.t.Helper()
	f.await(fmt.Sprintf("fleet of %s, want %d", id, n), func() string {
		running, all := f.pods(id)
		if len(running) == n {
			return ""
		}
		var text []string
		for _, p := range all {
			text = append(text, fmt.Sprintf("%s %s: %s; %+v", p.ID, p.Status, p.Change, p.Phases))
		}
		workers, err := f.registry.Workers.List(f.t.Context(), id)
		for _, w := range workers {
			text = append(text, fmt.Sprintf("%s says %s, runs %v, seen %s", w.ID, w.State, w.Running, w.Seen.Format(time.TimeOnly)))
		}
		return strings.Join(text, "\n") + "\n" + fmt.Sprint(err) + "\n" + f.decisions(id)
	})
}

func (f *fleetSite) decisions(id string) string {
	f.t.Helper()
	history, err := f.registry.Scaling.History(f.t.Context(), id, 20)
	if err != nil {
		f.t.Fatal(err)
	}
	var text []string
	for _, d := range history {
		text = append(text, fmt.Sprintf("%s wanted %d of %d: %s: %s", d.At.Format(time.TimeOnly), d.Wanted, d.Current, d.Reason, d.Text))
	}
	return strings.Join(text, "\n")
}

// fleetDev is a running dev.
func fleetDev(t *testing.T, settings ...string) (*fleetSite, *program.Process) {
	t.Helper()
	return fleetDevOf(t, program.New(t), settings...)
}

// fleetDevOf is a running dev of a site that may have had another one.
func fleetDevOf(t *testing.T, s *program.Env, settings ...string) (*fleetSite, *program.Process) {
	t.Helper()
	s.Environ = append(append(s.Environ, "FLIGHTLINE_LIMITS=off", "FLIGHTLINE_SYNC=interval"), settings...)
	d := s.Start("dev", "--no-demo")
	return fleetSiteOf(t, s, d), d
}

// fleetSiteOf is what a dev of this site serves, which was just started.
func fleetSiteOf(t *testing.T, s *program.Env, d *program.Process) *fleetSite {
	t.Helper()
	url := d.Line(program.Ready)
	var env struct{ APIKey, NatsURL, NatsUser, NatsPassword string }
	program.Decode(t, s.OK("env", "-o", "json"), &env)
	nc, err := nats.Connect(env.NatsURL, nats.UserInfo(env.NatsUser, env.NatsPassword))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	return newFleetSite(t, url, env.APIKey, nc)
}

// fleetServer is a NATS of its own with an API, for autoscalers that are killed apart from
// it. scaler starts one.
type fleetServer struct {
	*fleetSite

	bus *testenv.Server
	env *program.Env
}

func newFleetServer(t *testing.T) *fleetServer {
	t.Helper()
	s, b := program.New(t), testenv.NewServer(t)
	key := "fl_test_key_of_the_fleet"
	s.Environ = append(s.Environ, "NATS_URL="+b.Config().URL, "FLIGHTLINE_NATS_USER="+b.Config().User, "FLIGHTLINE_NATS_PASSWORD="+b.Config().Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+key, "FLIGHTLINE_LIMITS=off")
	url := s.Start("serve", "api", "control", "gateway", "recorder").Line(program.Ready)
	return &fleetServer{fleetSite: newFleetSite(t, url, key, b.NC), bus: b, env: s}
}

// scaler starts an autoscaler with a folder of its own, and waits until it is ready.
func (f *fleetServer) scaler(folder string, flags ...string) *program.Process {
	f.t.Helper()
	d := f.env.Start(append([]string{"serve", "autoscaler", "--create-streams=false", "--drivers", "process", "--fleet-folder", folder, "--gateway-url", f.url}, flags...)...)
	d.Line(program.Ready)
	return d
}

func newFleetSite(t *testing.T, url, key string, nc *nats.Conn) *fleetSite {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), js, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &fleetSite{t: t, url: url, key: key, worker: program.Build(t, "flightline/e2e/fleetworker"), registry: reg}
}

func TestAFleetGrowsWithItsJobsAndReturnsToZero(t *testing.T) {
	t.Parallel()
	f, d := fleetDev(t)
	f.endpoint("burst", nil)
	low := f.submit("burst", 3, 10, map[string]any{"lowPriority": true})
	f.endpoint("crash", map[string]any{"env": map[string]string{asFleetWorker: "crash"}})
	f.submit("crash", 1, 10, nil)
	// The crashing fleet has backed off twice, while nobody cared for the other's jobs.
	f.await("back-off", func() string {
		said := f.decisions("crash")
		if strings.Contains(said, "failed 2 times in a row") && strings.Contains(said, "no such model: teapot") {
			return ""
		}
		return said
	})
	if _, all := f.pods("burst"); len(all) > 0 {
		t.Fatalf("low-priority jobs alone: got %d workers, want none", len(all))
	}

	by := f.completed("burst", f.submit("burst", 30, 300, nil))
	if len(by) < 2 || len(by) > 3 {
		t.Errorf("30 jobs: got workers %v, want 2 or 3\n%s", by, f.decisions("burst"))
	}
	f.completed("burst", low)
	f.size("burst", 0)
	running := 0
	for _, p := range func() []pod.Pod { _, all := f.pods("burst"); return all }() {
		if p.Status != pod.Terminated || p.Machine.OS == "" || p.Started.IsZero() {
			t.Errorf("pod %s: got %s (%s), started %v, on %q; want it TERMINATED, with its facts", p.ID, p.Status, p.Change, p.Started, p.Machine.OS)
		}
		running++
	}
	if running != len(by) {
		t.Errorf("got %d pods, want the %d that worked", running, len(by))
	}
	d.Stop(program.StopWithin)
}
