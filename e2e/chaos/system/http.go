package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const completed = "COMPLETED"

// answer is what the API says about a job.
type answer struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Output struct {
		By string `json:"by"`
	} `json:"output"`
	Error string `json:"error"` // of an answer that is not 200
}

// try sends a submission once. It returns the job's id where the answer names
// one, also with an error.
func (c *callers) try(ctx context.Context, url, key string, body []byte) (id, code string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v2/"+endpointName+"/run", bytes.NewReader(body))
	if err != nil {
		return "", "no request", fmt.Errorf("submit: %w", err)
	}
	req.Header.Set("Idempotency-Key", key)
	var a answer
	status, header, err := c.do(req, &a)
	if err != nil {
		return header.Get("X-Job-Id"), "no answer", err
	}
	if status != http.StatusOK {
		return header.Get("X-Job-Id"), strconv.Itoa(status), fmt.Errorf("status %d", status)
	}
	return a.ID, "", nil
}

var errGone = errors.New("404")

// look asks a server how a job stands; it holds the call for so long while the
// job has not ended.
func (c *callers) look(ctx context.Context, id string, server int, hold time.Duration) (a answer, err error) {
	path := fmt.Sprintf("%s/v2/%s/status-sync/%s?wait=%d", c.url(server), endpointName, id, hold.Milliseconds())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return a, fmt.Errorf("look at a job: %w", err)
	}
	switch status, _, err := c.do(req, &a); {
	case err != nil:
		return a, err
	case status == http.StatusNotFound:
		return a, fmt.Errorf("%w: %s", errGone, a.Error)
	case status != http.StatusOK:
		return a, fmt.Errorf("status %d", status)
	}
	return a, nil
}

// do sends a request and reads the answer into to, if it is 200 or 404.
func (c *callers) do(req *http.Request, to any) (status int, header http.Header, err error) {
	req.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, resp.Header, fmt.Errorf("no whole answer: %w", err)
	}
	if (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotFound) && to != nil {
		if err := json.Unmarshal(text, to); err != nil {
			return 0, resp.Header, fmt.Errorf("answer %q: %w", text, err)
		}
	}
	return resp.StatusCode, resp.Header, nil
}

// readyz asks the first server whether it is ready.
func (c *callers) readyz(ctx context.Context) error { return c.readyzOf(ctx, c.urls[0]) }

func (c *callers) readyzOf(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("readyz: %w", err)
	}
	status, _, err := c.do(req, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("readyz: status %d", status)
	}
	return err
}

func (c *callers) url(n int) string { return c.urls[n%len(c.urls)] }

func terminal(status string) bool {
	switch status {
	case completed, "FAILED", "TIMED_OUT", "CANCELLED":
		return true
	}
	return false
}
