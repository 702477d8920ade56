package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/e2e/chaos/ledger"
)

// callers submit jobs and follow each to its end, through whatever happens to
// the servers.
type callers struct {
	world       *world
	http        *http.Client
	urls        []string // of the servers, tried in turn
	stopReading context.CancelFunc

	next    atomic.Int64  // the number of the next job
	accepts atomic.Int64  // jobs that were accepted
	open    atomic.Int64  // of these, those that have not ended
	looking chan struct{} // a slot for each caller that follows a job
	waiting int           // how many submissions of every may be not accepted yet, -1 for any number
	calls   sync.WaitGroup
	mu      sync.Mutex
	errors  map[string]int // of submissions that were not answered 200, by status and text
	slowest time.Duration  // acceptance, all tries included
	givenUp int            // submissions that were not accepted within submitTimeout
}

const (
	// submitTimeout bounds all tries of one submission.
	submitTimeout = 3 * time.Minute
	// callTimeout bounds one call, holdTime what the server may hold it.
	callTimeout, holdTime = 15 * time.Second, 10 * time.Second
	// maxFollowed is how many jobs are followed at a time: less than the limit of
	// an endpoint.
	maxFollowed = 300
	// maxWaiting is how many submissions at a steady rate are not accepted yet: a
	// busy machine that cannot serve them would only get more of them.
	maxWaiting = 100
	// hiddenTime is how long a job may be unknown to the servers before its caller
	// gives up. That it was unknown is a violation in any case.
	hiddenTime = 10 * time.Second
	// retryDelay is the pause after a failed call, at first; it doubles up to
	// maxRetryDelay.
	retryDelay, maxRetryDelay = 100 * time.Millisecond, time.Second
)

func newCallers(w *world, urls ...string) *callers {
	return &callers{
		world: w, urls: urls, errors: map[string]int{}, looking: make(chan struct{}, maxFollowed), waiting: maxWaiting,
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
	}
}

// submit submits a job until it is accepted or ctx ends, and follows it in the
// background.
func (c *callers) submit(ctx context.Context, in ledger.Input) error {
	in.N = int(c.next.Add(1))
	if err := c.accepted(ctx, in); err != nil {
		return err
	}
	c.accepts.Add(1)
	c.open.Add(1)
	c.calls.Go(func() {
		defer c.open.Add(-1)
		c.looking <- struct{}{}
		defer func() { <-c.looking }()
		c.follow(ctx, in.N)
	})
	return nil
}

// every submits a job in each interval without waiting for the answers, while no
// more than c.waiting jobs are not accepted yet, until it has done so for long enough.
// It returns once all jobs are accepted or were given up.
func (c *callers) every(ctx context.Context, interval time.Duration, enough func(passed time.Duration) bool, input func(n int) ledger.Input) {
	var calls errgroup.Group
	calls.SetLimit(c.waiting)
	defer calls.Wait() //nolint:errcheck // the book has what was not accepted
	due := time.NewTicker(interval)
	defer due.Stop()
	began := time.Now()
	for i := 0; !enough(time.Since(began)); i++ {
		calls.Go(func() error { return c.submit(ctx, input(i)) })
		select {
		case <-due.C:
		case <-ctx.Done():
			return
		}
	}
}

// saturate submits jobs until ctx ends, as fast as so many callers can one after
// the other, while fewer than backlog jobs wait or run.
func (c *callers) saturate(ctx context.Context, callers, backlog int, input ledger.Input) {
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for ctx.Err() == nil {
				if c.open.Load() >= int64(backlog) {
					wait(ctx, pollInterval)
					continue
				}
				_ = c.submit(context.WithoutCancel(ctx), input) // the book has what was not accepted
			}
		})
	}
	calls.Wait()
}

// accepted submits a job under its key until a server answers 200.
func (c *callers) accepted(ctx context.Context, in ledger.Input) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	sent := time.Now()
	c.world.book.update(in.N, func(j *job) { j.sent = sent })
	body, err := json.Marshal(map[string]any{"input": in})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	key := fmt.Sprintf("%d-%d", c.world.cfg.Seed, in.N)
	for try, pause := 0, retryDelay; ; try, pause = try+1, min(2*pause, maxRetryDelay) {
		id, code, err := c.try(ctx, c.url(in.N+try), key, body)
		c.world.book.update(in.N, func(j *job) {
			if id != "" && j.id != "" && id != j.id && !slices.Contains(j.others, id) {
				j.others = append(j.others, id)
			}
			if j.id == "" {
				j.id = id
			}
			if err == nil {
				j.accepted, j.status = time.Now(), "accepted"
			}
		})
		if err == nil {
			c.mu.Lock()
			c.slowest = max(c.slowest, time.Since(sent))
			c.mu.Unlock()
			return nil
		}
		c.mu.Lock()
		c.errors[code]++
		c.mu.Unlock()
		if !wait(ctx, pause) {
			c.mu.Lock()
			c.givenUp++
			c.mu.Unlock()
			return fmt.Errorf("job %d is not accepted: %w", in.N, err)
		}
	}
}

// follow waits for the end of a job, until ctx ends.
func (c *callers) follow(ctx context.Context, n int) {
	var id string
	c.world.book.update(n, func(j *job) { id = j.id })
	for try, pause := n, retryDelay; ; try, pause = try+1, min(2*pause, maxRetryDelay) {
		a, err := c.look(ctx, id, try, holdTime)
		over := false
		c.world.book.update(n, func(j *job) { over = j.seen(a, err, time.Now()) })
		if err == nil || errors.Is(err, errGone) {
			pause = retryDelay
		}
		if over || !wait(ctx, pause) {
			return
		}
	}
}

// seen notes an answer about the job, and reports whether the job is over.
func (j *job) seen(a answer, err error, now time.Time) (over bool) {
	switch {
	case errors.Is(err, errGone):
		if j.status = "404"; j.hidden.IsZero() {
			j.hidden, j.hiding = now, err.Error()
		}
		over = now.Sub(j.hidden) > hiddenTime
	case err != nil:
		j.status = err.Error()
	default:
		j.status, j.by = a.Status, a.Output.By
		over = terminal(a.Status)
	}
	if over {
		j.ended = now
	}
	return over
}

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
		return header.Get("X-Job-Id"), refusal(status, a.Error), fmt.Errorf("status %d: %s", status, a.Error)
	}
	return a.ID, "", nil
}

// refusal names why a submission was refused, without what differs from job to job.
func refusal(status int, text string) string {
	words := strings.Fields(text)
	words = slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") })
	return strings.Join(append([]string{strconv.Itoa(status)}, words[:min(len(words), maxRefusalWords)]...), " ")
}

// maxRefusalWords bounds what is kept of a refusal's text.
const maxRefusalWords = 12

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

// do sends a request and reads the answer into to. An answer other than 200 and 404 may be
// of any form.
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
	if to != nil {
		expected := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotFound
		if err := json.Unmarshal(text, to); err != nil && expected {
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
