package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/shared/pod"
	"flightline/shared/retry"
	"flightline/shared/wakeup"
)

// The variables of a RunPod worker's environment that are used.
const (
	envTake     = "RUNPOD_WEBHOOK_GET_JOB"
	envDone     = "RUNPOD_WEBHOOK_POST_OUTPUT"
	envStream   = "RUNPOD_WEBHOOK_POST_STREAM"
	envPing     = "RUNPOD_WEBHOOK_PING"
	envToken    = "RUNPOD_AI_API_KEY" //nolint:gosec // the name of a secret, not one
	envWorker   = "RUNPOD_POD_ID"
	envEndpoint = "RUNPOD_ENDPOINT_ID"
)

// checkEnv says which variable is not there.
func checkEnv(env map[string]string) error {
	for _, name := range []string{envTake, envDone, envStream, envPing, envToken, envWorker, envEndpoint} {
		if env[name] == "" {
			return fmt.Errorf("--worker-env: no %s", name)
		}
	}
	return nil
}

// readEnv reads NAME=value lines; empty ones and those that begin with # are
// passed over.
func readEnv(text string) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			env[name] = value
		}
	}
	return env
}

// environmentOf is what Flightline gives a worker that it lets in.
func environmentOf(w pod.Worker) map[string]string {
	env := map[string]string{}
	for _, v := range pod.WorkerEnvironment(w) {
		env[v.Name] = v.Value
	}
	return env
}

// task is what a job's input asks of conform's worker; else it returns
// the input.
type task struct {
	SleepMs int    `json:"sleepMs,omitempty"`
	Fail    string `json:"fail,omitempty"`
	// Beside has an output posted beside the error.
	Beside bool `json:"beside,omitempty"`
	// Once makes only the first attempt fail.
	Once bool `json:"once,omitempty"`
	// Chunks are posted as they are; Bytes is the size of one more, a string.
	Chunks []json.RawMessage `json:"chunks,omitempty"`
	Bytes  int               `json:"bytes,omitempty"`
	// Brief returns {"brief":true} instead of the input.
	Brief bool `json:"brief,omitempty"`
}

// remote is conform as a worker, by RunPod's worker protocol.
type remote struct {
	env  map[string]string
	http *http.Client
	wg   sync.WaitGroup
	kick wakeup.Signal // a job came: ping at once
	mu   sync.Mutex
	runs map[string]bool            // the jobs that run
	seen map[string]json.RawMessage // each job that was taken, as it came
	past map[string]int             // attempts of each job
}

func newRemote(env map[string]string, transport http.RoundTripper) *remote {
	return &remote{
		env: env, http: &http.Client{Transport: transport}, kick: wakeup.New(),
		runs: map[string]bool{}, seen: map[string]json.RawMessage{}, past: map[string]int{},
	}
}

// start works until stop is called; jobs that run then are left.
func (r *remote) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.wg.Go(func() { r.pings(ctx) })
	r.wg.Go(func() { r.pollLoop(ctx) })
	return func() {
		cancel()
		r.wg.Wait()
		r.http.CloseIdleConnections()
	}
}

// pingEvery is well within every lease.
const pingEvery = 2 * time.Second

// pings reports which jobs run.
func (r *remote) pings(ctx context.Context) {
	beat := time.NewTicker(pingEvery)
	defer beat.Stop()
	for ctx.Err() == nil {
		r.mu.Lock()
		ids := strings.Join(slices.Sorted(maps.Keys(r.runs)), ",")
		r.mu.Unlock()
		query := "&runpod_version=conform"
		if ids != "" {
			query += "&job_id=" + ids
		}
		_, _ = r.send(ctx, http.MethodGet, r.env[envPing], query, "") // the next one is soon
		select {
		case <-ctx.Done():
		case <-beat.C:
		case <-r.kick:
		}
	}
}

// pollLoop polls for jobs and runs each at once.
func (r *remote) pollLoop(ctx context.Context) {
	for ctx.Err() == nil {
		a, err := r.send(ctx, http.MethodGet, strings.ReplaceAll(r.env[envTake], "$ID", r.env[envWorker]), "&job_in_progress=0", "")
		if err != nil || a.status >= http.StatusBadRequest {
			_ = retry.Sleep(ctx, pollInterval) // the loop ends with ctx
			continue
		}
		if id := a.text("id"); a.status == http.StatusOK && id != "" {
			r.mu.Lock()
			r.runs[id], r.seen[id] = true, a.raw
			r.past[id]++
			attempt := r.past[id]
			r.mu.Unlock()
			r.kick.Send()
			r.wg.Go(func() { r.handle(ctx, id, attempt, a.raw) })
		}
	}
}

// handle does the job's task and posts the result.
func (r *remote) handle(ctx context.Context, id string, attempt int, raw []byte) {
	var job struct {
		Input json.RawMessage `json:"input"`
	}
	var input struct {
		Conform task `json:"conform"`
	}
	_ = json.Unmarshal(raw, &job)         // a.text has read it
	_ = json.Unmarshal(job.Input, &input) // else there is no task
	do := input.Conform
	streams := len(do.Chunks) > 0 || do.Bytes > 0
	if do.Bytes > 0 {
		do.Chunks = append(do.Chunks, json.RawMessage(`{"output":"`+strings.Repeat("x", do.Bytes)+`"}`))
	}
	for _, chunk := range do.Chunks {
		r.post(ctx, envStream, id, false, string(chunk))
	}
	if retry.Sleep(ctx, time.Duration(do.SleepMs)*time.Millisecond) != nil {
		return
	}
	result := map[string]any{"output": job.Input}
	switch {
	case do.Fail != "" && (attempt == 1 || !do.Once):
		result = map[string]any{"error": do.Fail}
		if do.Beside {
			result["output"] = map[string]string{"details": do.Fail}
		}
	case do.Brief:
		result = map[string]any{"output": map[string]bool{"brief": true}}
	case streams:
		result = map[string]any{"output": []any{}}
	}
	r.post(ctx, envDone, id, streams, asJSON(result))
	r.mu.Lock()
	delete(r.runs, id)
	r.mu.Unlock()
}

// post posts to the server, three times if it does not take it.
func (r *remote) post(ctx context.Context, variable, id string, stream bool, body string) {
	address := strings.ReplaceAll(r.env[variable], "$ID", id)
	for range 3 {
		a, err := r.send(ctx, http.MethodPost, address, fmt.Sprintf("&isStream=%t", stream), body)
		if err == nil && a.status < http.StatusInternalServerError {
			return
		}
		if retry.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// send sends a request as RunPod's SDK does: the bare token, JSON under the
// content type of a form.
func (r *remote) send(ctx context.Context, method, address, query, body string) (answer, error) {
	address = strings.ReplaceAll(address, "$RUNPOD_POD_ID", r.env[envWorker])
	if !strings.Contains(address, "?") {
		query = "?" + strings.TrimPrefix(query, "&")
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, address+query, reader)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", r.env[envToken])
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return receive(r.http, req)
}

// took is the job as the worker got it, nil if it did not.
func (r *remote) took(id string) json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id]
}
