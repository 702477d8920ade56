package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// A key is refused by what it has at all endpoints; others are not.
func TestAKeyHasSoMuchWaitingAtAllEndpoints(t *testing.T) {
	now := time.Now()
	s := usageTable{answered: now}
	for i, step := range []struct {
		endpoint, key string
		bytes         int64
		limit         job.Caller
		want          FullError // zero for admitted
	}{
		{"one", "a", 60, job.Caller{MaxBytes: 100, MaxJobs: 2}, FullError{}},
		{"two", "a", 41, job.Caller{MaxBytes: 100, MaxJobs: 2}, FullError{"", "waitingBytes", 41, 60, 100}},
		{"two", "a", 40, job.Caller{MaxBytes: 100, MaxJobs: 2}, FullError{}},
		{"one", "a", 0, job.Caller{MaxBytes: 100, MaxJobs: 2}, FullError{"", "waitingJobs", 1, 2, 2}},
		{"one", "b", 100, job.Caller{MaxBytes: 100, MaxJobs: 2}, FullError{}},
		{"one", "a", 0, job.Caller{MaxJobs: 3}, FullError{}}, // its quota was changed
		{"one", "a", 1 << 40, job.Caller{}, FullError{}},
		{"one", "", 1 << 40, job.Caller{MaxBytes: 1, MaxJobs: 1}, FullError{}},
	} {
		step.limit.Key = step.key
		e := endpoint.Endpoint{ID: step.endpoint, MaxQueueBytes: endpoint.MaxMaxQueueBytes}
		err := s.reserve(e, step.bytes, step.limit, true, now)
		full, refused := errors.AsType[*FullError](err)
		if refused != (step.want != FullError{}) || refused && *full != step.want {
			t.Errorf("step %d: got %v, want %v", i, err, &step.want)
		}
	}
	if got, want := s.keys["a"].waiting, (load{100 + 1<<40, 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	s.keys["a"].limit = load{1, 1}
	s.answered = now.Add(-maxRefusalAge)
	if err := s.reserve(endpoint.Endpoint{ID: "one"}, 1, job.Caller{Key: "a", MaxJobs: 1}, true, now); err != nil {
		t.Errorf("while queues cannot be measured: %v", err)
	}
}

// Queues are measured for keys that are near their quota: once a second while
// jobs come or are refused, else each 5 s.
func TestQueuesAreMeasuredForKeysNearTheirQuota(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		use   keyUse
		asked int64
		age   time.Duration
		want  bool
	}{
		"far from it":           {keyUse{waiting: load{jobs: 4}}, 1, 29 * time.Second, false},
		"near, and jobs come":   {keyUse{waiting: load{jobs: 6}}, 1, time.Second, true},
		"near, and none come":   {keyUse{waiting: load{jobs: 6}}, 0, 4 * time.Second, false},
		"near, for some time":   {keyUse{waiting: load{jobs: 6}}, 0, 5 * time.Second, true},
		"refused elsewhere":     {keyUse{waiting: load{jobs: 4}, refused: true}, 0, time.Second, true},
		"far, for a long time":  {keyUse{waiting: load{jobs: 4}}, 0, maxMeasureAge, true},
		"near, with its bytes":  {keyUse{waiting: load{bytes: 6, jobs: 1}}, 1, time.Second, true},
		"unbounded, jobs come":  {keyUse{waiting: load{bytes: 1 << 50, jobs: 1}, limit: load{bound(0), bound(0)}}, 1, time.Second, false},
		"refused, with nothing": {keyUse{refused: true}, 0, time.Second, true},
	} {
		if test.use.limit == (load{}) {
			test.use.limit = load{10, 10}
		}
		r := queueUsage{limit: load{1000, 1000}, measured: now.Add(-test.age), asked: test.asked}
		r.history.add("a", load{1, 1}, now)
		s := usageTable{of: map[string]*queueUsage{"ep": &r}, keys: map[string]*keyUse{"a": &test.use}}
		if got := len(s.due(now)) == 1; got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if test.use.refused {
			t.Errorf("%s: still refused after a round", name)
		}
	}
}

// The count of a key's waiting jobs is right after jobs ended, at an endpoint that
// another key uses, too, and after the endpoint is deleted.
func TestAKeysJobsThatEndedMakeRoom(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(*endpoint.Endpoint) {})
	ours, theirs := job.Caller{Key: "ours", MaxJobs: 3}, job.Caller{Key: "theirs", MaxJobs: 3}
	submit := func(by job.Caller) error {
		_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`), Caller: by})
		if err == nil || errors.Is(err, ErrFull) {
			s.measured(t)
		}
		return err
	}
	for range 3 {
		if err := submit(ours); err != nil {
			t.Fatal(err)
		}
	}
	full, isFull := errors.AsType[*FullError](submit(ours))
	if want := (FullError{Field: "waitingJobs", Size: 1, Used: 3, Limit: 3}); !isFull || *full != want {
		t.Fatalf("got %v, want %v", full, &want)
	}
	if err := submit(theirs); err != nil {
		t.Errorf("another key: %v", err)
	}
	if _, err := next(t, s.consumer(t, s.q, "w")).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); ; <-time.After(50 * time.Millisecond) { // the server removes the message some time after its ack
		err := submit(ours)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrFull) || time.Now().After(end) {
			t.Fatalf("after an end: got %v, want room again", err)
		}
	}
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(t, func() string { // the last submission may still have it measured
		s.measured(t)
		s.q.usage.mu.Lock()
		defer s.q.usage.mu.Unlock()
		if len(s.q.usage.keys) > 0 || len(s.q.usage.of) > 0 {
			return fmt.Sprintf("got %d keys and %d rooms after the endpoint was deleted, want none", len(s.q.usage.keys), len(s.q.usage.of))
		}
		return ""
	})
}

// BenchmarkAdmit is what a submission pays for the bounds of its endpoint and key.
func BenchmarkAdmit(b *testing.B) {
	for name, by := range map[string]job.Caller{"of a key": {Key: "a"}, "without a key": {}} {
		b.Run(name, func(b *testing.B) {
			var s usageTable
			e := endpoint.Endpoint{ID: "ep"}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.reserve(e, 256, by, true, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
