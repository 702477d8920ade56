package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

func TestDevShowsACompletedJobAndServesTheCommandLine(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev")
	url := d.Line(program.Ready)
	if got := d.Line("first job "); !strings.Contains(got, `is COMPLETED: {"text":"hello, world"}`) {
		t.Errorf("got first job %q, want it completed", got)
	}
	for name, want := range map[string]os.FileMode{".flightline": 0o700, ".flightline/dev.json": 0o600} {
		if info, err := os.Stat(filepath.Join(s.Dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %o", name, info.Mode(), err, want)
		}
	}
	if got := s.OK("runsync", "echo", `{"n":1}`); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, `{"n":1}`) {
		t.Errorf("runsync: got %q, want the input back", got)
	}
	if got := s.OK("run", "echo", `{"n":2}`, "--wait"); !strings.Contains(got, `{"n":2}`) {
		t.Errorf("run --wait: got %q, want the input back", got)
	}
	id := program.Submit(s, "echo")
	if got := s.OK("status", "echo", id, "--wait", "-o", "json"); !strings.Contains(got, `"status":"COMPLETED"`) {
		t.Errorf("status --wait: got %q", got)
	}
	for want, args := range map[int][]string{
		1: {"retry", "echo", id},
		2: {"run", "echo", "no JSON"},
		3: {"health", "echo", "--url", "http://127.0.0.1:1"},
		4: {"status", "echo", "unknown"},
	} {
		if code, out, errs := s.Run(args...); code != want {
			t.Errorf("%v: got code %d, want %d\n%s%s", args, code, want, out, errs)
		}
	}
	if code, _, errs := s.Run("dev"); code != 1 || !strings.Contains(errs, "runs already") || !strings.Contains(errs, url) {
		t.Errorf("a second dev: got code %d and %q, want a refusal that names the first, at %s", code, errs, url)
	}
	d.Stop(program.StopWithin)
	if code, _, _ := s.Run("health", "echo"); code != 3 {
		t.Errorf("after the stop: got code %d, want 3", code)
	}
}

func TestDevRefusesWhatItWasNotMeantToDo(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev", "--data", "first")
	url := d.Line(program.Ready)
	d.Line("first job ")
	var first struct{ NatsURL string }
	program.Decode(t, s.OK("env", "--data", "first", "-o", "json"), &first)
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
		"a form of /stream that is none": {[]string{"--stream-format", "xml"}, 2, `--stream-format "xml": must be array or object`},
	} {
		code, _, errs := s.Run(append([]string{"dev", "--data", "second"}, test.args...)...)
		if code != test.code || !strings.Contains(errs, test.says) {
			t.Errorf("%s: got code %d and %q, want %d and %q", name, code, errs, test.code, test.says)
		}
	}
	// A user without use for the demo may delete it; the rest stays up.
	s.OK("endpoint", "delete", "echo", "--force", "--data", "first")
	s.OK("endpoint", "create", "mine", "--data", "first")
	s.OK("endpoint", "create", "echo", "--data", "first") // its worker comes back
	if got := s.OK("run", "echo", `{"n":1}`, "--wait", "--data", "first"); !strings.Contains(got, "COMPLETED") {
		t.Errorf("echo made again: got %s", got)
	}
	d.Stop(program.StopWithin)
}

// Programs that poll /stream by hand send a key and nothing else.
func TestAPlainStreamHasTheFormOfTheSetting(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev", "--stream-format", "object", "--api-key", "plain-stream-key")
	url := d.Line(program.Ready)
	d.Line("first job ")
	id := program.Submit(s, "echo")
	s.OK("status", "echo", id, "--wait")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v2/echo/stream/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer plain-stream-key")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := `{"status":"COMPLETED","stream":[]}`; err != nil || resp.StatusCode != http.StatusOK || string(body) != want {
		t.Errorf("got %d %s, %v, want %s", resp.StatusCode, body, err, want)
	}
}

func TestTheTextOfACommandIsTheOutput(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "words")
	w := s.Start("worker", "words", "--", "sh", "-c", "echo hello; echo seen >&2")
	w.Line(program.WorkerReady)
	if got := s.OK("runsync", "words", "{}", "-o", "json"); !strings.Contains(got, `"output":"hello"`) {
		t.Errorf("got %s, want the text as the output", got)
	}
	s.Eventually("the worker shows standard error", func() bool { return strings.Contains(w.Said(), "stderr=seen") })
}

func TestAWorkersTerminalShowsWhichJobFailedAndWhy(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "broken")
	w := s.Start("worker", "broken", "--", "sh", "-c", "exit 7")
	w.Line(program.WorkerReady)
	if code, out, _ := s.Run("runsync", "broken", "{}"); code != 1 || !strings.Contains(out, "exit status 7") {
		t.Errorf("got code %d and %s, want 1 and the exit status", code, out)
	}
	s.Eventually("the worker shows the failure", func() bool {
		return strings.Contains(w.Said(), `msg="job failed"`) && strings.Contains(w.Said(), `error="exit status 7"`)
	})
}

func TestKeysOpenWhatTheirScopesSayUntilRevoked(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "mine")
	s.OK("endpoint", "create", "other")
	var key struct{ ID, Key string }
	program.Decode(t, s.OK("key", "create", "ci", "--scope", "submit:mine", "-o", "json"), &key)

	s.OK("run", "mine", "{}", "--api-key", key.Key)
	for _, args := range [][]string{{"run", "other", "{}"}, {"health", "mine"}, {"purge", "mine"}, {"key", "list"}} {
		if code, _, errs := s.Run(append(args, "--api-key", key.Key)...); code != 1 || !strings.Contains(errs, "401") {
			t.Errorf("%v: got code %d and %q, want 401", args, code, errs)
		}
	}
	s.OK("key", "revoke", key.ID)
	if code, _, errs := s.Run("run", "mine", "{}", "--api-key", key.Key); code != 1 || !strings.Contains(errs, "401") {
		t.Errorf("revoked: got code %d and %q, want 401", code, errs)
	}
	if code, _, errs := s.Run("endpoint", "delete", "mine"); code != 1 || !strings.Contains(errs, "--force") {
		t.Errorf("deleting with a job: got code %d and %q, want how to delete it", code, errs)
	}
	s.OK("endpoint", "delete", "mine", "--force")
	if code, _, _ := s.Run("endpoint", "get", "mine"); code != 4 {
		t.Errorf("deleted: got code %d, want 4", code)
	}
}

func TestAcceptedJobsOutliveAStopAndAKill(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "group", "interval"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			outlive(t, sync)
		})
	}
}

// outlive takes jobs through a stop and a kill, which no setting of sync may
// lose them by: only a power loss shows the difference.
func outlive(t *testing.T, sync string) {
	t.Helper()
	s := program.New(t)
	s.Environ = append(s.Environ, "FLIGHTLINE_SYNC="+sync)
	d := s.Start("dev", "--no-demo")
	d.Line(program.Ready)
	s.OK("endpoint", "create", "keep")
	ids := []string{program.Submit(s, "keep"), program.Submit(s, "keep")}
	d.Stop(program.StopWithin)

	d = s.Start("dev", "--no-demo")
	d.Line(program.Ready)
	for _, id := range ids {
		if got := s.OK("status", "keep", id); !strings.Contains(got, "IN_QUEUE") {
			t.Errorf("after a stop: got %q, want IN_QUEUE", got)
		}
	}
	ids = append(ids, program.Submit(s, "keep"))
	d.Kill()

	d = s.Start("dev", "--no-demo")
	d.Line(program.Ready)
	if said := d.Said(); strings.Contains(said, "nats server") {
		t.Errorf("after a kill: got %s, want no warning of NATS, which lost nothing", said)
	}
	w := s.Start("worker", "keep", "--", "cat")
	w.Line(program.WorkerReady)
	for _, id := range ids {
		var got struct {
			Status string
			Output struct {
				ID    string
				Input json.RawMessage
			}
		}
		program.Decode(t, s.OK("status", "keep", id, "--wait", "-o", "json"), &got)
		if got.Status != "COMPLETED" || got.Output.ID != id || string(got.Output.Input) != `{"n":1}` {
			t.Errorf("got %+v, want %s completed with its own input", got, id)
		}
	}
	w.Stop(program.StopWithin)
	if code, _, errs := s.Run("worker", "none", "--", "cat"); code != 4 {
		t.Errorf("a worker for nothing: got code %d and %q, want 4", code, errs)
	}
}

func TestAKeyThatWasReplacedOpensNothing(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev", "--no-demo", "--api-key", "the-first-one")
	d.Line(program.Ready)
	d.Stop(program.StopWithin)
	d = s.Start("dev", "--no-demo", "--api-key", "the-second-one")
	d.Line(program.Ready)
	s.OK("endpoint", "list")
	if code, _, errs := s.Run("endpoint", "list", "--api-key", "the-first-one"); code != 1 || !strings.Contains(errs, "401") {
		t.Errorf("got code %d and %q, want 401", code, errs)
	}
	d.Stop(program.StopWithin)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "list", "--api-key", "the-second-one") // it was kept
}

func TestRolesServeAgainstANATSThatRunsElsewhere(t *testing.T) {
	t.Parallel()
	bus := testenv.NewServer(t).Config()
	s := program.New(t)
	s.Environ = append(s.Environ, "NATS_URL="+bus.URL, "FLIGHTLINE_NATS_USER="+bus.User, "FLIGHTLINE_NATS_PASSWORD="+bus.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY=an-administrator", "FLIGHTLINE_API_KEY=an-administrator")
	control, api := s.Start("serve", "control"), s.Start("serve", "api", "api")
	controlURL, apiURL := control.Line(program.Ready), api.Line(program.Ready)

	s.OK("endpoint", "create", "far", "--url", controlURL)
	w := s.Start("worker", "far", "--", "cat")
	w.Line(program.WorkerReady)
	if got := s.OK("runsync", "far", "{}", "--url", apiURL); !strings.Contains(got, "COMPLETED") {
		t.Errorf("got %q, want a completed job", got)
	}
	if code, _, errs := s.Run("endpoint", "list", "--url", apiURL); code != 1 || !strings.Contains(errs, "route_not_found") {
		t.Errorf("control at the api: got code %d and %q, want 1 and route_not_found", code, errs)
	}
	for _, args := range [][]string{{"serve"}, {"serve", "nothing"}, {"serve", "api", "--replicas", "2"}} {
		if code, _, errs := s.Run(args...); code != 2 {
			t.Errorf("%v: got code %d and %q, want 2", args, code, errs)
		}
	}
	for _, d := range []*program.Process{w, api, control} {
		d.Stop(program.StopWithin)
	}
}
