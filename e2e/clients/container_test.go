package clients

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// contained is a worker in a container, without the container: container.py and
// what compose.yaml gives it.
type contained struct {
	*bench
	env []string
}

func newContained(t *testing.T) contained {
	t.Helper()
	b := newBench(t, filepath.Join(examples, "container.py"))
	key := filepath.Join(b.dir, "api-key")
	if err := os.WriteFile(key, []byte(b.s.APIKey), 0o600); err != nil {
		t.Fatal(err)
	}
	return contained{b, []string{
		"FLIGHTLINE_URL=" + b.s.URL, "FLIGHTLINE_API_KEY_FILE=" + key, "GATEWAY_URL=" + b.gateway, "ENDPOINT=" + b.endpoint,
		"WORKER_ENV=" + filepath.Join(b.dir, "env.json"),
	}}
}

// command is container.py with this argument.
func (c contained) command(argument string) *exec.Cmd {
	c.Helper()
	return command(c.T, c.dir, c.env, needsPython(c.T, python), c.script, argument)
}

// letIn runs worker-setup and returns the worker's environment.
func (c contained) letIn() map[string]string {
	c.Helper()
	if out, err := c.command("let-in").CombinedOutput(); err != nil {
		c.Fatalf("let-in: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "env.json"))
	if err != nil {
		c.Fatal(err)
	}
	var env map[string]string
	if err := json.Unmarshal(text, &env); err != nil {
		c.Fatalf("%s: %v", text, err)
	}
	return env
}

// A second `docker compose up` runs worker-setup again: the worker that runs is
// not shut out by it. A token that lets nobody in is replaced.
func TestAContainersTokenIsKeptWhileItLetsIn(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	first := c.letIn()
	c.startAs(first["RUNPOD_POD_ID"], c.command(absolute(t, filepath.Join(examples, "plain.py"))))
	c.completes(c.submit(input{"text": "one"}), `{"text":"ONE"}`)
	if again := c.letIn(); again["RUNPOD_AI_API_KEY"] != first["RUNPOD_AI_API_KEY"] {
		t.Error("got another token, want the one that lets in")
	}
	c.completes(c.submit(input{"text": "two"}), `{"text":"TWO"}`)

	path := "/v1/endpoints/" + c.endpoint + "/workers/" + first["RUNPOD_POD_ID"]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.s.APIKey)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("revoke: %+v, %v", answer, err)
	}
	_ = answer.Body.Close()
	if revoked := c.letIn(); revoked["RUNPOD_AI_API_KEY"] == first["RUNPOD_AI_API_KEY"] || !strings.HasPrefix(revoked["RUNPOD_AI_API_KEY"], "fw_") {
		t.Errorf("got the token %.6s…, want a new one", revoked["RUNPOD_AI_API_KEY"])
	}
}
