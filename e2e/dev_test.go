package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus/bustest"
)

// stopWithin is what people wait for after Ctrl-C.
const stopWithin = 5 * time.Second

const (
	ready       = "flightline ready: "
	workerReady = "flightline worker ready: "
)

func TestDevShowsACompletedJobAndServesTheCommandLine(t *testing.T) {
	s := newSite(t)
	d := s.start("dev")
	url := d.line(ready)
	if got := d.line("first job "); !strings.Contains(got, `is COMPLETED: {"text":"hello, world"}`) {
		t.Errorf("got first job %q, want it completed", got)
	}
	for name, want := range map[string]os.FileMode{".flightline": 0o700, ".flightline/dev.json": 0o600} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %o", name, info.Mode(), err, want)
		}
	}
	if got := s.ok("runsync", "echo", `{"n":1}`); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, `{"n":1}`) {
		t.Errorf("runsync: got %q, want the input back", got)
	}
	if got := s.ok("run", "echo", `{"n":2}`, "--wait"); !strings.Contains(got, `{"n":2}`) {
		t.Errorf("run --wait: got %q, want the input back", got)
	}
	id := submit(s, "echo")
	if got := s.ok("status", "echo", id, "--wait", "-o", "json"); !strings.Contains(got, `"status":"COMPLETED"`) {
		t.Errorf("status --wait: got %q", got)
	}
	for want, args := range map[int][]string{
		1: {"retry", "echo", id},
		2: {"run", "echo", "no JSON"},
		3: {"health", "echo", "--url", "http://127.0.0.1:1"},
		4: {"status", "echo", "unknown"},
	} {
		if code, out, errs := s.run(args...); code != want {
			t.Errorf("%v: got code %d, want %d\n%s%s", args, code, want, out, errs)
		}
	}
	if code, _, errs := s.run("dev"); code != 1 || !strings.Contains(errs, "runs already") || !strings.Contains(errs, url) {
		t.Errorf("a second dev: got code %d and %q, want a refusal that names the first, at %s", code, errs, url)
	}
	d.stop(stopWithin)
	if code, _, _ := s.run("health", "echo"); code != 3 {
		t.Errorf("after the stop: got code %d, want 3", code)
	}
}

func TestDevRefusesWhatItWasNotMeantToDo(t *testing.T) {
	s := newSite(t)
	d := s.start("dev", "--data", "first")
	url := d.line(ready)
	d.line("first job ")
	var first struct{ NatsURL string }
	decode(t, s.ok("env", "--data", "first", "-o", "json"), &first)
	_, natsAddress, _ := strings.Cut(first.NatsURL, "//")
	_, address, _ := strings.Cut(url, "//")
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a port of NATS that is taken":   {[]string{"--nats-listen", natsAddress}, 1, natsAddress},
		"a port of HTTP that is taken":   {[]string{"--listen", address}, 1, address},
		"a durability that is not":       {[]string{"--sync", "sometimes"}, 2, "always, group or interval"},
		"a key that is easily guessed":   {[]string{"--api-key", "short"}, 2, "8 to 512"},
		"limits from a file that is not": {[]string{"--limits", "nowhere"}, 2, "default, off or a file"},
	} {
		code, _, errs := s.run(append([]string{"dev", "--data", "second"}, test.args...)...)
		if code != test.code || !strings.Contains(errs, test.says) {
			t.Errorf("%s: got code %d and %q, want %d and %q", name, code, errs, test.code, test.says)
		}
	}
	// Whoever has no use for the demo may delete it; the rest stays up.
	s.ok("endpoint", "delete", "echo", "--force", "--data", "first")
	s.ok("endpoint", "create", "mine", "--data", "first")
	d.stop(stopWithin)
}

func TestKeysOpenWhatTheirScopesSayUntilRevoked(t *testing.T) {
	s := newSite(t)
	s.start("dev", "--no-demo").line(ready)
	s.ok("endpoint", "create", "mine")
	s.ok("endpoint", "create", "other")
	var key struct{ ID, Key string }
	decode(t, s.ok("key", "create", "ci", "--scope", "submit:mine", "-o", "json"), &key)

	s.ok("run", "mine", "{}", "--api-key", key.Key)
	for _, args := range [][]string{{"run", "other", "{}"}, {"health", "mine"}, {"purge", "mine"}, {"key", "list"}} {
		if code, _, errs := s.run(append(args, "--api-key", key.Key)...); code != 1 || !strings.Contains(errs, "401") {
			t.Errorf("%v: got code %d and %q, want 401", args, code, errs)
		}
	}
	s.ok("key", "revoke", key.ID)
	if code, _, errs := s.run("run", "mine", "{}", "--api-key", key.Key); code != 1 || !strings.Contains(errs, "401") {
		t.Errorf("revoked: got code %d and %q, want 401", code, errs)
	}
	if code, _, errs := s.run("endpoint", "delete", "mine"); code != 1 || !strings.Contains(errs, "409") {
		t.Errorf("deleting with a job: got code %d and %q, want 409", code, errs)
	}
	s.ok("endpoint", "delete", "mine", "--force")
	if code, _, _ := s.run("endpoint", "get", "mine"); code != 4 {
		t.Errorf("deleted: got code %d, want 4", code)
	}
}

func TestAcceptedJobsOutliveAStopAndAKill(t *testing.T) {
	for _, sync := range []string{"always", "group", "interval"} {
		t.Run(sync, func(t *testing.T) { outlive(t, sync) })
	}
}

// outlive takes jobs through a stop and a kill, which no setting of sync may
// lose them by: only a power loss tells the settings apart.
func outlive(t *testing.T, sync string) {
	t.Helper()
	s := newSite(t)
	s.env = append(s.env, "FLIGHTLINE_SYNC="+sync)
	d := s.start("dev", "--no-demo")
	d.line(ready)
	s.ok("endpoint", "create", "keep")
	ids := []string{submit(s, "keep"), submit(s, "keep")}
	d.stop(stopWithin)

	d = s.start("dev", "--no-demo")
	d.line(ready)
	for _, id := range ids {
		if got := s.ok("status", "keep", id); !strings.Contains(got, "IN_QUEUE") {
			t.Errorf("after a stop: got %q, want IN_QUEUE", got)
		}
	}
	ids = append(ids, submit(s, "keep"))
	d.kill()

	s.start("dev", "--no-demo").line(ready)
	w := s.start("worker", "keep", "--", "cat")
	w.line(workerReady)
	for _, id := range ids {
		var got struct {
			Status string
			Output struct {
				ID    string
				Input json.RawMessage
			}
		}
		decode(t, s.ok("status", "keep", id, "--wait", "-o", "json"), &got)
		if got.Status != "COMPLETED" || got.Output.ID != id || string(got.Output.Input) != `{"n":1}` {
			t.Errorf("got %+v, want %s completed with its own input", got, id)
		}
	}
	w.stop(stopWithin)
	if code, _, errs := s.run("worker", "none", "--", "cat"); code != 4 {
		t.Errorf("a worker for nothing: got code %d and %q, want 4", code, errs)
	}
}

func TestAKeyThatWasReplacedOpensNothing(t *testing.T) {
	s := newSite(t)
	d := s.start("dev", "--no-demo", "--api-key", "the-first-one")
	d.line(ready)
	d.stop(stopWithin)
	d = s.start("dev", "--no-demo", "--api-key", "the-second-one")
	d.line(ready)
	s.ok("endpoint", "list")
	if code, _, errs := s.run("endpoint", "list", "--api-key", "the-first-one"); code != 1 || !strings.Contains(errs, "401") {
		t.Errorf("got code %d and %q, want 401", code, errs)
	}
	d.stop(stopWithin)
	s.start("dev", "--no-demo").line(ready)
	s.ok("endpoint", "list", "--api-key", "the-second-one") // it was kept
}

func TestRolesServeAgainstANATSThatRunsElsewhere(t *testing.T) {
	bus := bustest.New(t).Config()
	s := newSite(t)
	s.env = append(s.env, "NATS_URL="+bus.URL, "FLIGHTLINE_NATS_USER="+bus.User, "FLIGHTLINE_NATS_PASSWORD="+bus.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY=an-administrator", "FLIGHTLINE_API_KEY=an-administrator")
	control, api := s.start("serve", "control"), s.start("serve", "api", "api")
	controlURL, apiURL := control.line(ready), api.line(ready)

	s.ok("endpoint", "create", "far", "--url", controlURL)
	w := s.start("worker", "far", "--", "cat")
	w.line(workerReady)
	if got := s.ok("runsync", "far", "{}", "--url", apiURL); !strings.Contains(got, "COMPLETED") {
		t.Errorf("got %q, want a completed job", got)
	}
	if code, _, _ := s.run("endpoint", "list", "--url", apiURL); code != 4 {
		t.Errorf("control at the api: got code %d, want 4", code)
	}
	for _, args := range [][]string{{"serve"}, {"serve", "nothing"}, {"serve", "api", "--replicas", "2"}} {
		if code, _, errs := s.run(args...); code != 2 {
			t.Errorf("%v: got code %d and %q, want 2", args, code, errs)
		}
	}
	for _, d := range []*daemon{w, api, control} {
		d.stop(stopWithin)
	}
}

// submit submits a job with the input {"n":1} and returns its id.
func submit(s *site, endpoint string) string {
	s.t.Helper()
	var j struct{ ID, Status string }
	decode(s.t, s.ok("run", endpoint, `{"n":1}`, "-o", "json"), &j)
	if j.ID == "" || j.Status != "IN_QUEUE" {
		s.t.Fatalf("got %+v, want an id and IN_QUEUE", j)
	}
	return j.ID
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}
