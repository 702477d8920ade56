// Command fleetworker is a worker that speaks RunPod's protocol and nothing
// else, for tests of fleets and to measure them. With FLEET_TEST_SLEEPS it is one of the Go
// SDK, which can sleep. It is one static file, so that an image of it alone works. Its jobs
// take input.ms, with FLEET_TEST_UNTIL until that file is there, and return the id of the
// worker.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// setting is what the fleet says.
func setting(name string) string {
	return os.Getenv(name) //nolint:forbidigo // it is a worker, which has nothing else
}

func main() {
	if setting("FLEET_TEST_WORKER") == "crash" {
		_, _ = fmt.Fprintln(os.Stderr, "no such model: teapot")
		os.Exit(3) //nolint:forbidigo // it is what is tested
	}
	interval, err := strconv.Atoi(setting("RUNPOD_PING_INTERVAL"))
	if err != nil || interval < 1000 {
		_, _ = fmt.Fprintf(os.Stderr, "RUNPOD_PING_INTERVAL: got %q, want milliseconds\n", setting("RUNPOD_PING_INTERVAL"))
		os.Exit(2) //nolint:forbidigo // a program of its own
	}
	if ledger := setting("FLEET_TEST_LEDGER"); ledger != "" {
		lockGPUs(ledger, setting("CUDA_VISIBLE_DEVICES"))
	}
	if setting("FLEET_TEST_SLEEPS") != "" {
		runSleeper(setting("FLEET_TEST_LEDGER"), setting("CUDA_VISIBLE_DEVICES"))
		return
	}
	if model := setting("FLEET_TEST_MODEL"); model != "" {
		keepModel(setting("HF_HUB_CACHE"), model)
	}
	w := &worker{held: map[string]bool{}}
	go func() {
		w.ping()
		for range time.Tick(time.Duration(interval) * time.Millisecond) {
			w.ping()
		}
	}()
	for { // until it is asked to end
		w.once()
	}
}

// keepModel puts a model where the libraries that download one would.
func keepModel(hub, name string) {
	folder := filepath.Join(hub, "models--"+strings.ReplaceAll(name, "/", "--"), "snapshots", "main")
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o600)
	}
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "HF_HUB_CACHE: got %q: %v\n", hub, err)
		os.Exit(2) //nolint:forbidigo // a program of its own
	}
}

type worker struct {
	mu   sync.Mutex
	held map[string]bool
}

// hold notes that a job is held, or no longer.
func (w *worker) hold(id string, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.held, id); held {
		w.held[id] = true
	}
}

func (w *worker) ping() {
	w.mu.Lock()
	var ids []string
	for id := range w.held {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	_, _ = w.call(http.MethodGet, setting("RUNPOD_WEBHOOK_PING")+"&job_id="+strings.Join(ids, ","), nil)
}

// once takes a job and ends it, if there is one.
func (w *worker) once() {
	body, code := w.call(http.MethodGet, setting("RUNPOD_WEBHOOK_GET_JOB")+"&job_in_progress=0", nil)
	if code != http.StatusOK {
		if code != http.StatusNoContent {
			<-time.After(100 * time.Millisecond)
		}
		return
	}
	var j struct {
		ID    string `json:"id"`
		Input struct {
			Ms int `json:"ms"`
		} `json:"input"`
	}
	if json.Unmarshal(body, &j) != nil {
		return
	}
	w.hold(j.ID, true)
	<-time.After(time.Duration(j.Input.Ms) * time.Millisecond)
	if file := setting("FLEET_TEST_UNTIL"); file != "" {
		awaitFile(file)
	}
	answer := fmt.Appendf(nil, `{"output":{"worker":%q}}`, setting("RUNPOD_POD_ID"))
	if cause := setting("FLEET_TEST_FAILS"); cause != "" {
		answer = fmt.Appendf(nil, `{"error":%q}`, cause)
	}
	to := strings.ReplaceAll(setting("RUNPOD_WEBHOOK_POST_OUTPUT"), "$ID", j.ID) + "&isStream=false"
	for range 3 {
		if _, code := w.call(http.MethodPost, to, answer); code == http.StatusOK {
			break
		}
	}
	w.hold(j.ID, false)
}

// awaitFile waits until the file is there.
func awaitFile(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (w *worker) call(method, url string, body []byte) ([]byte, int) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, 0
	}
	r.Header.Set("Authorization", setting("RUNPOD_AI_API_KEY"))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, 0
	}
	defer answer.Body.Close()
	read, _ := io.ReadAll(answer.Body)
	return read, answer.StatusCode
}
