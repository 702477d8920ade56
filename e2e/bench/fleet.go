package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	fleetCase = "fleet"
	// modelLoad is how long each worker loads its model: it sleeps.
	modelLoad = "1"
	// yieldRest is how long a worker has had no job when it is to yield: longer than the
	// arbiter asks for, so that the wait for that is not measured.
	yieldRest = 6500 * time.Millisecond
	// fleetCards are two GPUs, each for a pair of endpoints that takes turns on it.
	fleetCards = `[{"uuid":"GPU-1","vendor":"nvidia","name":"stop","memoryMb":24576},{"uuid":"GPU-2","vendor":"nvidia","name":"sleep","memoryMb":24576}]`
)

// fleet is a `flightline dev` whose autoscaler starts workers.
type fleet struct {
	*devServer
	rounds int
	http   http.Client
}

// fleet measures what a job waits for where a worker has to start, to wake, or to get the
// GPU of another one first, beside the same job where the bench starts the worker's process.
func (b *bench) fleet(ctx context.Context) ([]row, error) {
	cards := filepath.Join(b.dir, "gpus.json")
	if err := os.WriteFile(cards, []byte(fleetCards), 0o600); err != nil {
		return nil, err
	}
	dev, err := b.startDev(ctx, fleetCase, "--metrics-listen", "off", "--gpus", cards)
	if err != nil {
		return nil, err
	}
	defer dev.stop()
	f := &fleet{devServer: dev}
	if err := f.endpoints(ctx); err != nil {
		return nil, err
	}
	pairs := map[string][]pair{}
	cases := []struct {
		name string
		do   func(context.Context) (time.Duration, error)
	}{
		{"from zero", f.fromZero},
		{"wake", f.wake},
		{"swap, stop and start", func(ctx context.Context) (time.Duration, error) { return f.swap(ctx, "stop") }},
		{"swap, sleep and wake", func(ctx context.Context) (time.Duration, error) { return f.swap(ctx, "sleep") }},
	}
	const warmUp = 2 // round 0 starts one of each pair, round 1 the other
	for i := range warmUp + b.sizes.rounds {
		_, _ = fmt.Fprintf(b.progress, "fleet: round %d\n", i)
		f.rounds = i
		bare, err := f.bare(ctx)
		if err != nil {
			return nil, fmt.Errorf("bare start: %w", err)
		}
		for _, c := range cases {
			took, err := c.do(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if i >= warmUp {
				pairs[c.name] = append(pairs[c.name], pair{bare: inMillis(bare), ours: inMillis(took)})
			}
		}
	}
	var rows []row
	for _, c := range cases {
		rows = append(rows, rowsOf(fleetCase, c.name, pairs[c.name])...)
	}
	return rows, nil
}

func inMillis(d time.Duration) reading {
	return reading(nil).with("job", milliseconds, float64(d.Microseconds())/1000)
}

// endpoints makes those of the cases.
func (f *fleet) endpoints(ctx context.Context) error {
	return errors.Join(
		f.endpoint(ctx, "bare", `"driver":"external"`),
		f.endpoint(ctx, "zero", `"idleTimeout":1`),
		f.endpoint(ctx, "nap", `"idleTimeout":1,"sleepTimeout":3600`),
		f.endpoint(ctx, "stop-0", `"idleTimeout":3600,"gpuCount":1,"gpuTypeIds":["stop"],"minHoldMs":1000`),
		f.endpoint(ctx, "stop-1", `"idleTimeout":3600,"gpuCount":1,"gpuTypeIds":["stop"],"minHoldMs":1000`),
		f.endpoint(ctx, "sleep-0", `"idleTimeout":3600,"sleepTimeout":3600,"sleepGpuShare":0,"gpuCount":1,"gpuTypeIds":["sleep"],"minHoldMs":1000`),
		f.endpoint(ctx, "sleep-1", `"idleTimeout":3600,"sleepTimeout":3600,"sleepGpuShare":0,"gpuCount":1,"gpuTypeIds":["sleep"],"minHoldMs":1000`),
	)
}

// worker is the command of a worker that loads its model first.
func (f *fleet) worker(endpoint string) []string {
	return []string{
		"/bin/sh", "-c", `sleep ` + modelLoad + `; exec "$0" worker "$1" --data "$2" --log-level warn --sleep-command true --wake-command true -- cat`,
		f.program, endpoint, f.data,
	}
}

func (f *fleet) endpoint(ctx context.Context, id, fields string) error {
	command, err := json.Marshal(f.worker(id))
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"id":%q,"workersMax":1,%s,"command":%s}`, id, fields, command)
	if !strings.Contains(fields, "driver") {
		body = strings.Replace(body, `"workersMax"`, `"driver":"process","workersMax"`, 1)
	}
	if code, text := f.call(ctx, http.MethodPost, "/v1/endpoints", body); code != http.StatusOK {
		return fmt.Errorf("endpoint %s: status %d: %s", id, code, text)
	}
	return nil
}

// call returns the status and the text of an answer, 0 for none.
func (f *fleet) call(ctx context.Context, method, path, body string) (code int, text string) {
	req, err := http.NewRequestWithContext(ctx, method, f.at.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+devKey)
	answer, err := f.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	all, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all)
}

// until waits for a fact.
func (f *fleet) until(ctx context.Context, what string, holds func() bool) error {
	for end := time.Now().Add(stepWithin); !holds(); {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("%s: not within %s", what, stepWithin)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// workers waits until so many of the endpoint's workers are awake and so many sleep.
func (f *fleet) workers(ctx context.Context, id string, awake, asleep int) error {
	return f.until(ctx, "workers of "+id, func() bool {
		_, text := f.call(ctx, http.MethodGet, "/v2/"+id+"/health", "")
		var h struct {
			Workers struct {
				Idle         int `json:"idle"`
				Running      int `json:"running"`
				Initializing int `json:"initializing"`
				Ready        int `json:"ready"`
				Sleeping     int `json:"sleeping"`
			} `json:"workers"`
		}
		w := &h.Workers
		return json.Unmarshal([]byte(text), &h) == nil && max(w.Idle, w.Ready)+w.Running+w.Initializing == awake && w.Sleeping == asleep
	})
}

// job is how long a job takes from its submission to its result.
func (f *fleet) job(ctx context.Context, id string) (time.Duration, error) {
	began := time.Now()
	code, text := f.call(ctx, http.MethodPost, "/v2/"+id+"/runsync?wait=90000", `{"input":{}}`)
	if code != http.StatusOK || !strings.Contains(text, "COMPLETED") {
		return 0, fmt.Errorf("job of %s: status %d: %s", id, code, text)
	}
	return time.Since(began), nil
}

// bare is a job whose worker the bench starts at the same time.
func (f *fleet) bare(ctx context.Context) (time.Duration, error) {
	args := f.worker("bare")
	worker := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // ended below
	if err := worker.Start(); err != nil {
		return 0, err
	}
	took, err := f.job(ctx, "bare")
	_ = worker.Process.Kill()
	_ = worker.Wait() // it was killed
	return took, err
}

func (f *fleet) fromZero(ctx context.Context) (time.Duration, error) {
	if err := f.workers(ctx, "zero", 0, 0); err != nil {
		return 0, err
	}
	return f.job(ctx, "zero")
}

func (f *fleet) wake(ctx context.Context) (time.Duration, error) {
	if f.rounds > 0 {
		if err := f.workers(ctx, "nap", 0, 1); err != nil {
			return 0, err
		}
	}
	return f.job(ctx, "nap")
}

// swap is a job of the one of two endpoints that does not have the GPU.
func (f *fleet) swap(ctx context.Context, pair string) (time.Duration, error) {
	time.Sleep(yieldRest)
	return f.job(ctx, fmt.Sprintf("%s-%d", pair, f.rounds%2))
}
