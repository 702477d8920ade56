package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

const (
	endpointID = "python"
	// every is the pause between two submissions: 16 jobs/s, of which half wait
	// for their result. RunPod's client adds about four.
	every = time.Second / 16
	// jobWithin is how long a job may take, restarts of all it needs included.
	jobWithin = 2 * time.Minute
)

// load is what clients submitted, and what became of it.
type load struct {
	s    *stack
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	accepted map[job.ID]string // the text of its input
	waited   []time.Duration   // for runsync's results
	failed   []string
}

// newLoad submits jobs steadily until end is called.
func newLoad(s *stack) *load {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	l := &load{s: s, stop: stop, accepted: map[job.ID]string{}}
	c := s.client()
	l.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.wg.Go(func() { l.submit(c, n) }) //nolint:contextcheck // what was begun is ended
			}
		}
	})
	return l
}

// submit is one job; what it counts as failed is a call of the client's that
// failed, not a try of it.
func (l *load) submit(c *client.Client, n int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.s.t.Context()), jobWithin)
	defer cancel()
	text := fmt.Sprintf("job %d", n)
	request := client.Request{Input: map[string]string{"text": text}}
	began := time.Now()
	var j *client.Job
	var err error
	if n%2 == 0 {
		j, err = c.Run(ctx, endpointID, request)
	} else if j, err = c.RunSync(ctx, endpointID, request, 90*time.Second); err == nil {
		if err = right(j, text); err == nil {
			l.note(func() { l.waited = append(l.waited, time.Since(began)) })
		}
	}
	l.note(func() {
		if err != nil {
			l.failed = append(l.failed, fmt.Sprintf("%s after %v: %v", text, time.Since(began).Round(time.Second), err))
		}
		if j != nil {
			l.accepted[j.ID] = text
		}
	})
}

func (l *load) note(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
}

// right reports whether the job is done, and well.
func right(j *client.Job, text string) error {
	var output struct {
		Text string `json:"text"`
	}
	if j.Status != job.Completed {
		return fmt.Errorf("job %s is %s %s", j.ID, j.Status, j.Error)
	}
	if err := json.Unmarshal(j.Output, &output); err != nil || output.Text != strings.ToUpper(text) {
		return fmt.Errorf("job %s has the output %s", j.ID, j.Output)
	}
	return nil
}

// alive waits until a job goes through, which shows that all is back.
func (l *load) alive(after string) {
	l.s.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.s.t.Context(), jobWithin)
	defer cancel()
	j, err := l.s.client().RunSync(ctx, endpointID, client.Request{Input: map[string]string{"text": "alive"}}, 90*time.Second)
	if err == nil {
		err = right(j, "alive")
	}
	if err != nil {
		l.s.t.Errorf("after %s: %v", after, err)
	}
	l.s.t.Logf("a job goes through %v after %s", time.Since(began).Round(100*time.Millisecond), after)
}

// end stops the load and looks at everything that was accepted: each job is
// COMPLETED with its output, and ended once.
func (l *load) end() {
	t := l.s.t
	t.Helper()
	l.stop()
	l.wg.Wait()
	slices.Sort(l.waited)
	t.Logf("%d jobs accepted, %d calls failed; runsync p50 %v p99 %v slowest %v", len(l.accepted), len(l.failed),
		at(l.waited, 0.5), at(l.waited, 0.99), at(l.waited, 1))
	if len(l.accepted) < 200 {
		t.Errorf("got %d jobs accepted, want a load", len(l.accepted))
	}
	for _, why := range l.failed {
		t.Errorf("a call failed: %s", why)
	}
	c := l.s.client()
	for id, text := range l.accepted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), jobWithin)
		j, err := c.Wait(ctx, endpointID, id)
		cancel()
		switch {
		case client.IsNotFound(err): // of runsync, whose results are kept for a minute, and which was looked at
		case err != nil:
			t.Errorf("job %s: %v", id, err)
		default:
			if err := right(j, text); err != nil {
				t.Error(err)
			}
		}
	}
	l.endedOnce(c)
}

func at(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))].Round(10 * time.Millisecond)
}

// endedOnce reads the log of events: each accepted job has one end in it.
func (l *load) endedOnce(c *client.Client) {
	t := l.s.t
	t.Helper()
	var ends map[job.ID]int
	missing := func() (n int) {
		for id := range l.accepted {
			if ends[id] == 0 {
				n++
			}
		}
		return n
	}
	l.s.eventually("each end is recorded", func() bool {
		ends = map[job.ID]int{}
		events := c.Events(endpointID, client.EventsOptions{After: "0", Once: true, Types: []string{"job.completed", "job.failed", "job.timed_out", "job.cancelled"}})
		for e, err := range events.All(t.Context()) {
			if err != nil {
				t.Log(errors.Join(errors.New("events"), err))
				return false
			}
			ends[e.Job]++
			if e.Type != "job.completed" {
				t.Errorf("job %s: got %s", e.Job, e.Type)
			}
		}
		return missing() == 0
	})
	for id := range l.accepted {
		if ends[id] != 1 {
			t.Errorf("job %s ended %d times", id, ends[id])
		}
	}
}
