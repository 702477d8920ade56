package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"flightline/shared/pod"
)

const (
	fleetCase = "fleet"
	// firstResult names the figure.
	firstResult = "first result p50"
	// fleetKey is the administrator's of the dev that is measured.
	fleetKey = "bench-key-of-the-fleet"
	// fleetIdle is when the fleet is back at zero.
	fleetIdle = time.Second
	// fleetWithin bounds the preparation, fleetRoundWithin what a round adds.
	fleetWithin, fleetRoundWithin = 2 * stepWithin, 30 * time.Second
	// fleetAim is what a start from zero may take longer than the bare one.
	fleetAim = 300 * time.Millisecond
	// fleetLook is the pause between two looks at a pod or a fleet.
	fleetLook = 50 * time.Millisecond
)

// fleet measures, in a dev of its own, the time from the submission of a job to
// its result when there is no worker, beside the bare start: the time from the
// start of the same worker's process, by the bench itself, to the result of a
// job that is submitted at that instant. They take turns.
func (b *bench) fleet(ctx context.Context) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, fleetWithin+time.Duration(b.sizes.fleets)*fleetRoundWithin)
	defer cancel()
	dir := filepath.Join(b.dir, fleetCase)
	f := &fleetSite{dir: dir, data: filepath.Join(dir, "data")}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	workers := map[string][]string{"Go worker": {f.worker}}
	if python, script := publishedPython(); python != "" {
		workers["Python worker"] = []string{python, script}
	}
	var rows []row
	for _, name := range []string{"Go worker", "Python worker"} {
		command, there := workers[name]
		if !there {
			continue
		}
		_, _ = fmt.Fprintf(b.progress, "fleet: %s\n", name)
		pairs, err := f.rounds(ctx, strings.ToLower(name[:2]), command, b.sizes.fleets)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, rowsOf(fleetCase, name+", from zero", pairs)...)
	}
	return rows, nil
}

// fleetSite is a running dev.
type fleetSite struct {
	dir, data, binary, worker string
	url                       string
	cmd                       *exec.Cmd
	said                      bytes.Buffer
}

// start builds the programs and starts dev; the bench runs in its module.
func (f *fleetSite) start(ctx context.Context) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	f.binary, f.worker = filepath.Join(f.dir, "flightline"), filepath.Join(f.dir, "fleetworker")
	for to, from := range map[string]string{f.binary: "flightline/services/flightline", f.worker: "flightline/e2e/fleetworker"} {
		//nolint:gosec // our own packages, into our own folder
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", to, from).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", from, err, out)
		}
	}
	//nolint:gosec // what was built above
	f.cmd = exec.CommandContext(ctx, f.binary, "dev", "--no-demo", "--listen", "127.0.0.1:0", "--nats-listen", "off",
		"--data", f.data, "--api-key", fleetKey, "--limits", "off", "--sync", "interval")
	f.cmd.Stderr = &f.said
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.cmd.Start(); err != nil {
		return err
	}
	f.url, err = readyURL(out)
	if err != nil {
		return fmt.Errorf("dev: %w: %s", err, f.said.String())
	}
	return nil
}

func (f *fleetSite) stop() {
	if f.cmd == nil || f.cmd.Process == nil {
		return
	}
	_ = f.cmd.Process.Signal(os.Interrupt)
	late := time.AfterFunc(stopWithin, func() { _ = f.cmd.Process.Kill() })
	defer late.Stop()
	_ = f.cmd.Wait()
}

// rounds measures n times each, in turn.
func (f *fleetSite) rounds(ctx context.Context, id string, command []string, n int) ([]pair, error) {
	ours, bare := id+"-fleet", id+"-bare"
	err := f.call(ctx, http.MethodPost, "/v1/endpoints", map[string]any{
		"id": ours, "driver": "process", "command": command, "workersMin": 0, "workersMax": 1, "idleTimeout": fleetIdle.Seconds(),
	}, nil)
	if err == nil {
		err = f.call(ctx, http.MethodPost, "/v1/endpoints", map[string]any{"id": bare, "driver": "external"}, nil)
	}
	var pairs []pair
	for i := 0; i <= n && err == nil; i++ {
		var p pair
		if p.ours, err = f.first(ctx, ours, time.Now()); err != nil {
			break
		}
		if err = f.empty(ctx, ours); err != nil {
			break
		}
		if p.bare, err = f.bare(ctx, bare, fmt.Sprintf("own%d", i), command); err == nil && i > 0 { // the first warms up
			pairs = append(pairs, p)
		}
	}
	return pairs, err
}

// first runs one job, and tells when its result came.
func (f *fleetSite) first(ctx context.Context, id string, began time.Time) (reading, error) {
	var got struct{ ID, Status string }
	if err := f.call(ctx, http.MethodPost, "/v2/"+id+"/runsync?wait=120000", map[string]any{"input": map[string]int{"ms": 0}}, &got); err != nil {
		return nil, err
	}
	if got.Status != "COMPLETED" {
		return nil, fmt.Errorf("job %s is %s", got.ID, got.Status)
	}
	return reading{{firstResult, milliseconds, float64(time.Since(began).Microseconds()) / 1000}}, nil
}

// bare is the same with a worker whose process is started first. Its token is
// made before.
func (f *fleetSite) bare(ctx context.Context, id, worker string, command []string) (reading, error) {
	var token struct {
		Token          string
		PingIntervalMs int64
	}
	if err := f.call(ctx, http.MethodPost, "/v1/endpoints/"+id+"/workers", map[string]string{"id": worker}, &token); err != nil {
		return nil, err
	}
	w := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // our own worker
	w.Env = os.Environ()
	for _, v := range pod.WorkerEnvironment(pod.Worker{
		BaseURL: f.url, Endpoint: id, ID: worker, Token: token.Token, PingInterval: time.Duration(token.PingIntervalMs) * time.Millisecond,
	}) {
		w.Env = append(w.Env, v.Name+"="+v.Value)
	}
	began := time.Now()
	if err := w.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = w.Process.Kill()
		_ = w.Wait()
	}()
	return f.first(ctx, id, began)
}

// empty waits until the endpoint has no worker.
func (f *fleetSite) empty(ctx context.Context, id string) error {
	for {
		var pods []struct{ EndpointID, DesiredStatus string }
		if err := f.call(ctx, http.MethodGet, "/v1/pods?includeWorkers=true&desiredStatus=RUNNING&endpointId="+id, nil, &pods); err != nil {
			return err
		}
		if len(pods) == 0 {
			return nil
		}
		select {
		case <-time.After(fleetLook):
		case <-ctx.Done():
			return fmt.Errorf("%s still has a worker: %w", id, ctx.Err())
		}
	}
}

func (f *fleetSite) call(ctx context.Context, method, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+fleetKey)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %d, %w: %s", method, path, answer.StatusCode, err, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
