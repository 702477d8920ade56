// Package program runs the built flightline binary for tests: in a folder of
// its own, with its processes and what the tests wait for.
package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv"
)

// Soon bounds every wait for a fact that should hold within moments, with
// room for a machine that does much else.
const Soon = 3 * time.Minute

// StopWithin bounds the end of a process after SIGTERM, likewise.
const StopWithin = time.Minute

// What a process prints when it can be used.
const (
	Ready       = "flightline ready: "
	WorkerReady = "flightline worker ready: "
)

// Env is a folder in which the built binary is used, as a stranger would.
type Env struct {
	T       *testing.T
	Dir     string
	Binary  string
	Environ []string // on top of what a shell needs; the last of a name counts
}

// New gives the binary an empty folder and free ports.
func New(t *testing.T) *Env {
	t.Helper()
	return &Env{
		T: t, Dir: t.TempDir(), Binary: Build(t, "flightline/services/flightline"),
		Environ: []string{"FLIGHTLINE_LISTEN=127.0.0.1:0", "FLIGHTLINE_NATS_LISTEN=127.0.0.1:0"},
	}
}

// Command is the binary, or another program, in the folder of e. Settings in the
// environment of the test do not reach it.
func (e *Env) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(e.T.Context(), name, args...)
	cmd.Dir = e.Dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FLIGHTLINE_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, e.Environ...)
	return cmd
}

// endWithin bounds a command line that is to end by itself.
const endWithin = 2 * time.Minute

// Run runs a command line of the binary to its end.
func (e *Env) Run(args ...string) (code int, out, errs string) {
	e.T.Helper()
	cmd := e.Command(e.Binary, args...)
	late := time.AfterFunc(endWithin, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.T.Fatalf("flightline %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// OK runs a command line that must succeed, and returns what it answered.
func (e *Env) OK(args ...string) string {
	e.T.Helper()
	code, out, errs := e.Run(args...)
	if code != 0 {
		e.T.Fatalf("flightline %v: got code %d, want 0\n%s%s", args, code, out, errs)
	}
	return out
}

// Submit submits a job with the input {"n":1} and returns its id.
func Submit(e *Env, endpoint string) string {
	e.T.Helper()
	var j struct{ ID, Status string }
	Decode(e.T, e.OK("run", endpoint, `{"n":1}`, "-o", "json"), &j)
	if j.ID == "" || j.Status != "IN_QUEUE" {
		e.T.Fatalf("got %+v, want an id and IN_QUEUE", j)
	}
	return j.ID
}

// Decode reads JSON.
func Decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// Eventually waits until holds returns true.
func (e *Env) Eventually(what string, holds func() bool) {
	e.T.Helper()
	testenv.Within(e.T, Soon, what, holds)
}

// Readyz asks an instance whether it is ready, and returns the status.
func Readyz(ctx context.Context, base string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}
