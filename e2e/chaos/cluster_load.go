package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is callers who do what good callers do: they submit at a steady rate,
// whatever becomes of the jobs before, and try again under the same
// idempotency key, elsewhere, until an answer says that the job is accepted.
type load struct {
	client *client
	seed   uint64

	mu    sync.Mutex
	calls []callerCall
	jobs  []string
}

// callerCall is what became of one job's submission.
type callerCall struct {
	due      time.Time     // when it was to be sent
	took     time.Duration // from due to the last answer
	accepted bool
	job      string
	others   []string // ids that other answers under the same key had
	errors   []string // of the tries that did not succeed
}

const (
	// tryTimeout is how long a caller waits for one answer: longer than the API
	// takes to say that it does not know.
	tryTimeout = 6 * time.Second
	// callTimeout is how long a caller tries.
	callTimeout = time.Minute
	// maxPause is the longest pause between two tries, as a rule: who comes more
	// often keeps those down who are down.
	maxPause = 4 * time.Second
	// longJobRatio is in how many jobs one runs for seconds, and so
	// through what happens to the bus.
	longJobRatio = 20
)

// run submits rate jobs a second for d, and returns when all were answered.
func (l *load) run(ctx context.Context, rate int, d time.Duration) {
	var calls sync.WaitGroup
	defer calls.Wait()
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if due.Sub(began) >= d || !wait(ctx, time.Until(due)) {
			return
		}
		calls.Go(func() { l.call(context.WithoutCancel(ctx), n, due) })
	}
}

// call submits job n until it is accepted. The ledger gets one entry for all
// tries: they are one submission, or the key is worth nothing.
func (l *load) call(ctx context.Context, n int, due time.Time) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := input{Tag: n, Plan: quick}
	if n%longJobRatio == 0 {
		in.Plan, in.At = steady, due.Add(time.Duration(1+n/longJobRatio%8)*time.Second).UnixMilli()
	}
	body, key := submission(in, policy{}), fmt.Sprintf("%d-%d", l.seed, n)
	told := callerCall{due: due}
	e := entry{Kind: submitOp, Endpoint: clusterEndpoint, Call: time.Now().UnixNano(), Answer: unknown}
	for pause := again; ; pause = min(2*pause, maxPause) {
		err := l.try(ctx, l.client.apis[(n+len(told.errors))%len(l.client.apis)], key, body, &told)
		if told.accepted = err == ""; told.accepted {
			e.Answer = yes
			break
		}
		told.errors = append(told.errors, err)
		if !wait(ctx, pause/2+rand.N(pause)) { //nolint:gosec // chance, no secret
			break
		}
	}
	e.At, e.Job = time.Now().UnixNano(), told.job
	told.took = time.Unix(0, e.At).Sub(due)
	l.client.books.write(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, told)
	if told.job != "" {
		l.jobs = append(l.jobs, told.job)
	}
}

// try sends the submission once; "" means that it is accepted.
func (l *load) try(ctx context.Context, api, key string, body []byte, told *callerCall) string {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api+"/v2/"+clusterEndpoint+"/run", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Idempotency-Key", key)
	resp, err := l.client.http.Do(req)
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "no answer"
	}
	e := entry{Kind: submitOp, Job: resp.Header.Get("X-Job-Id"), Answer: unknown}
	l.client.read(&e, resp.StatusCode, text)
	if e.Job != "" && told.job != "" && e.Job != told.job && !slices.Contains(told.others, e.Job) {
		told.others = append(told.others, told.job)
	}
	if e.Job != "" {
		told.job = e.Job
	}
	if e.Answer != yes {
		return strconv.Itoa(resp.StatusCode)
	}
	return ""
}

// onceEach: a key stands for one job, and there are no jobs but those of keys.
func (l *load) onceEach(histories map[string]*history) []violation {
	const rule = "one job per key"
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []violation
	named, nameless := map[string]bool{}, 0
	for _, c := range l.calls {
		if len(c.others) > 0 {
			found = append(found, violation{rule, c.job, fmt.Sprintf("other answers under its key had %v", c.others)})
		}
		if c.job == "" {
			nameless++
			continue
		}
		if named[c.job] {
			found = append(found, violation{rule, c.job, "two keys have it"})
		}
		named[c.job] = true
	}
	var strangers []string
	for id, s := range histories {
		if !named[id] && len(s.writes) > 0 {
			strangers = append(strangers, id)
		}
	}
	slices.Sort(strangers)
	if len(strangers) > nameless {
		found = append(found, violation{rule, strangers[0], fmt.Sprintf("%d jobs that no answer named, and %d callers whose answers named none", len(strangers), nameless)})
	}
	return found
}
