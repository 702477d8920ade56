package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// A message that is delivered again does not prove that the holder of its job
// fell silent: one whose lease ended while the server stood still stays in the
// server's redelivery list, whatever the holder says afterwards
// (streams/facts_freeze_test.go). So the holder is asked before its run is
// taken over (docs/adr/0029).

const (
	// askTimeout is how long a holder has to answer.
	askTimeout = time.Second
	// askRetryInterval is when the question is repeated: core NATS may lose it.
	askRetryInterval = askTimeout / 2
)

// askBody makes a nudge a question.
const askBody = "ask"

func isAsk(m *nats.Msg) bool { return string(m.Data) == askBody }

// holderAnswer is what a process knows that was asked about the holder of a job.
type holderAnswer struct {
	// Attempt and Run name the run whose worker lives; 0: the sender knows none.
	Attempt int `json:"attempt,omitempty"`
	Run     int `json:"run,omitempty"`
	// ServedMs is for how long JetStream has served the sender without a gap.
	ServedMs int64 `json:"servedMs,omitempty"`
}

// askHolder asks whether the worker of r's run lives, and those who watch
// JetStream for how long it has served. It returns as soon as the worker has
// answered, or after askTimeout.
func (q *Queue) askHolder(ctx context.Context, at place, r *record) (alive bool, served time.Duration, err error) {
	answers := make(chan *nats.Msg, 64)
	sub, err := q.nc.ChanSubscribe(streams.HolderAnswer(at.endpoint, r.ID), answers)
	if err != nil {
		return false, 0, fmt.Errorf("ask the holder of job %s: %w: %w", r.ID, ErrUnavailable, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	late, repeat := time.NewTimer(askTimeout), time.NewTicker(askRetryInterval)
	defer late.Stop()
	defer repeat.Stop()
	question := func() { _ = q.nc.Publish(streams.Nudge(at.endpoint, r.ID), []byte(askBody)) }
	question()
	for {
		select {
		case m := <-answers:
			var a holderAnswer
			if json.Unmarshal(m.Data, &a) != nil {
				continue
			}
			if a.Attempt == r.Attempt && a.Run == r.Run {
				return true, served, nil
			}
			served = max(served, time.Duration(a.ServedMs)*time.Millisecond)
		case <-repeat.C:
			question()
		case <-late.C:
			return false, served, nil
		case <-ctx.Done():
			return false, served, fmt.Errorf("ask the holder of job %s: %w: %w", r.ID, ErrUnavailable, ctx.Err())
		}
	}
}

func (q *Queue) answer(endpointID string, id job.ID, a holderAnswer) {
	body, err := json.Marshal(a)
	if err == nil {
		_ = q.nc.Publish(streams.HolderAnswer(endpointID, id), body)
	}
}

// answerAvailability tells those who ask about holders for how long JetStream
// has served this process, until ctx ends: workers that end soon after their
// start cannot know it themselves.
func (q *Queue) answerAvailability(ctx context.Context) error {
	sub, err := q.nc.Subscribe(streams.AnyNudge, func(m *nats.Msg) {
		if isAsk(m) {
			q.answer(streams.EndpointOf(m.Subject), streams.JobOf(m.Subject), holderAnswer{ServedMs: q.service.age().Milliseconds()})
		}
	})
	if err != nil {
		return fmt.Errorf("listen for questions about holders: %w: %w", ErrUnavailable, err)
	}
	<-ctx.Done()
	return sub.Unsubscribe()
}

// keptRuns are the runs of remote workers that this process has heard of within
// their lease.
type keptRuns struct {
	mu    sync.Mutex
	runs  map[job.ID]keptRun
	swept time.Time
}

type keptRun struct {
	attempt, run int
	at           time.Time
	lease        time.Duration
}

func (k *keptRuns) add(j *job.Job, lease time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.runs == nil {
		k.runs = make(map[job.ID]keptRun)
	}
	if now.Sub(k.swept) > endpoint.MinLease {
		for id, r := range k.runs {
			if now.Sub(r.at) >= r.lease {
				delete(k.runs, id)
			}
		}
		k.swept = now
	}
	k.runs[j.ID] = keptRun{j.Attempt, j.Run, now, lease}
}

// find returns the run of the job whose worker was heard of within its lease.
func (k *keptRuns) find(id job.ID) (r keptRun, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok = k.runs[id]
	return r, ok && time.Since(r.at) < r.lease
}
