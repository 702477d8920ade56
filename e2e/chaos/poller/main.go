// Command poller is a worker of the chaos tests that speaks RunPod's protocol to a
// gateway, with one job at a time. It writes what command handler does.
//
//	env $(flightline worker env ENDPOINT) poller LEDGER
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"flightline/e2e/chaos/ledger"
)

const (
	// pingInterval is half of what the gateway asks of a worker by default.
	pingInterval = 2500 * time.Millisecond
	// callTimeout is longer than the gateway holds a poll.
	callTimeout = 90 * time.Second
	// retryDelay is the pause after a failed call.
	retryDelay = 100 * time.Millisecond
)

func main() { ledger.Main("poller", os.Args[1:], poll) }

// poll takes jobs from a gateway, one at a time, until the process is killed.
func poll(book *ledger.File) error {
	var held atomic.Value
	held.Store("")
	go func() {
		for {
			_, _ = call(http.MethodGet, os.Getenv("RUNPOD_WEBHOOK_PING")+"&job_id="+held.Load().(string), nil)
			<-time.After(pingInterval)
		}
	}()
	for {
		text, code := call(http.MethodGet, os.Getenv("RUNPOD_WEBHOOK_GET_JOB")+"&job_in_progress=0", nil)
		var j ledger.Job
		if code != http.StatusOK || json.Unmarshal(text, &j) != nil {
			<-time.After(retryDelay)
			continue
		}
		held.Store(j.ID)
		output, err := j.Work(book)
		if err != nil {
			return err
		}
		to := strings.ReplaceAll(os.Getenv("RUNPOD_WEBHOOK_POST_OUTPUT"), "$ID", j.ID) + "&isStream=false"
		for range 3 { // as RunPod's own worker does
			if _, code := call(http.MethodPost, to, []byte(`{"output":`+output+`}`)); code == http.StatusOK {
				break
			}
			<-time.After(retryDelay)
		}
		held.Store("")
	}
}

// call returns the answer and its status, 0 if there was no answer.
func call(method, url string, body []byte) ([]byte, int) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body)) //nolint:gosec // the gateway of the test
	if err != nil {
		return nil, 0
	}
	r.Header.Set("Authorization", os.Getenv("RUNPOD_AI_API_KEY"))
	answer, err := http.DefaultClient.Do(r) //nolint:gosec // as above
	if err != nil {
		return nil, 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0
	}
	return text, answer.StatusCode
}
