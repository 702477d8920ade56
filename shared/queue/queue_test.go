package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/bustest"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// site is a bus with one endpoint and a running queue.
type site struct {
	*bustest.Bus
	q *Queue
	e endpoint.Endpoint
}

const soon = 10 * time.Second

func newSite(t *testing.T, change ...func(*endpoint.Endpoint)) *site {
	t.Helper()
	b := bustest.New(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	e.Lease = time.Second
	for _, c := range change {
		c(&e)
	}
	s := &site{Bus: b, e: e}
	s.q = s.queue(t, Config{})
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return s
}

// queue makes another process's queue on the same bus.
func (s *site) queue(t *testing.T, cfg Config) *Queue {
	t.Helper()
	q, err := New(t.Context(), s.Connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func (s *site) deadlines(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.q.Deadlines(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *site) submit(t *testing.T, change ...func(*job.Request)) job.ID {
	t.Helper()
	r := job.Request{Input: json.RawMessage(`{"n":1}`)}
	for _, c := range change {
		c(&r)
	}
	id := NewID(job.Async)
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *site) taker(t *testing.T, q *Queue, worker string) *Taker {
	t.Helper()
	taker, err := q.Take(t.Context(), s.e, worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(taker.Close)
	return taker
}

func next(t *testing.T, taker *Taker) *Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := taker.Next(ctx)
	if err != nil {
		t.Fatalf("no job to take: %v", err)
	}
	return l
}

// nothing asserts that no job is handed out within d.
func nothing(t *testing.T, taker *Taker, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if l, err := taker.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got lease %+v, %v; want none", l, err)
	}
}

func (s *site) status(t *testing.T, id job.ID) *job.Job {
	t.Helper()
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return j
}

func (s *site) want(t *testing.T, id job.ID, status job.Status) *job.Job {
	t.Helper()
	j := s.status(t, id)
	if j.Status != status {
		t.Fatalf("job is %s (%q), want %s", j.Status, j.Error, status)
	}
	return j
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (s *site) empty(t *testing.T) {
	t.Helper()
	eventually(t, "the queue is empty", func() bool {
		info, err := s.JS.Stream(t.Context(), streams.Jobs(s.e.ID))
		return err == nil && info.CachedInfo().State.Msgs == 0
	})
}

func TestJobRunsFromSubmissionToResult(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	s.want(t, id, job.InQueue)
	l := next(t, s.taker(t, s.q, "w1"))
	if string(l.Input) != `{"n":1}` {
		t.Errorf("input is %s", l.Input)
	}
	if j := s.want(t, id, job.InProgress); j.Worker != "w1" || j.Run != 1 {
		t.Errorf("worker %q run %d, want w1 and 1", j.Worker, j.Run)
	}
	if err := l.Progress(t.Context(), json.RawMessage(`{"done": 50}`)); err != nil {
		t.Fatal(err)
	}
	if j := s.status(t, id); string(j.Output) != `{"done":50}` {
		t.Errorf("progress is %s", j.Output)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`{"ok": true}`)); err != nil {
		t.Fatal(err)
	}
	j := s.want(t, id, job.Completed)
	if string(j.Output) != `{"ok":true}` || j.Retries() != 0 {
		t.Errorf("output %s retries %d", j.Output, j.Retries())
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`2`)); err != nil || string(s.status(t, id).Output) != `{"ok":true}` {
		t.Errorf("a repeated Complete: %v, output %s", err, s.status(t, id).Output)
	}
	s.empty(t)
}

func TestWaiterIsWoken(t *testing.T) {
	for name, output := range map[string]string{"in the header": `"<b> & é\u2028\r\n"`, "in the body": `"` + strings.Repeat("x", 2*shortMost) + `"`, "none": ``, "beside": `"` + strings.Repeat("y", 1<<20) + `"`} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := NewID(job.Sync)
			w, err := s.q.Watch(s.e, id)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			j, err := s.q.Submit(t.Context(), s.e, id, job.Sync, job.Request{Input: json.RawMessage(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			w.Submitted(j)
			if _, err := next(t, s.taker(t, s.q, "w")).Complete(t.Context(), json.RawMessage(output)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), pollEvery/2)
			defer cancel()
			got, err := w.Wait(ctx)
			if err != nil || got.Status != job.Completed || string(got.Output) != output {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
}

func TestLargePayloadsComeBackWhole(t *testing.T) {
	s := newSite(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("z", 8<<20) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	l := next(t, s.taker(t, s.q, "w"))
	if string(l.Input) != string(big) {
		t.Fatalf("input has %d bytes, want %d", len(l.Input), len(big))
	}
	if _, err := l.Complete(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if got := s.status(t, id).Output; string(got) != string(big) {
		t.Fatalf("output has %d bytes, want %d", len(got), len(big))
	}
}

func TestOutputOverTheLimitIsFailed(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	if _, err := l.Complete(t.Context(), json.RawMessage(`"`+strings.Repeat("z", job.MaxOutput)+`"`)); err != nil {
		t.Fatal(err)
	}
	if j := s.want(t, id, job.Failed); !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
		t.Errorf("error is %q", j.Error)
	}
}

func TestLostWorkerIsReplacedAfterItsLease(t *testing.T) {
	s := newSite(t)
	second := s.queue(t, Config{})
	eventually(t, "served for a lease", func() bool { return second.service.age() > s.e.Lease })
	id := s.submit(t)
	first := next(t, s.taker(t, s.q, "dies"))
	start := time.Now()
	l := next(t, s.taker(t, second, "lives"))
	if took := time.Since(start); took > s.e.Lease+time.Second {
		t.Errorf("taken over after %v, want at most lease + 1 s", took)
	}
	if l.Job.Run != 2 || l.Job.Lost != 1 {
		t.Errorf("run %d lost %d, want 2 and 1", l.Job.Run, l.Job.Lost)
	}
	if _, err := first.Complete(t.Context(), json.RawMessage(`"stale"`)); !errors.Is(err, ErrLost) {
		t.Errorf("the stale run completed: %v", err)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`"fresh"`)); err != nil {
		t.Fatal(err)
	}
	if j := s.want(t, id, job.Completed); string(j.Output) != `"fresh"` || j.Retries() != 1 {
		t.Errorf("output %s retries %d", j.Output, j.Retries())
	}
}

func TestHeartbeatKeepsTheLease(t *testing.T) {
	s := newSite(t)
	second := s.queue(t, Config{})
	eventually(t, "served for a lease", func() bool { return second.service.age() > s.e.Lease })
	s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*s.e.Lease)
	defer cancel()
	go func() {
		tick := time.NewTicker(s.e.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := l.Extend(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("extend: %v", err)
				}
			}
		}
	}()
	nothing(t, s.taker(t, second, "other"), 3*s.e.Lease-100*time.Millisecond)
}

func TestTooManyLostWorkersFailTheJob(t *testing.T) {
	s := newSite(t, func(e *endpoint.Endpoint) { e.MaxLost = 2 })
	eventually(t, "served for a lease", func() bool { return s.q.service.age() > s.e.Lease })
	id := s.submit(t)
	taker := s.taker(t, s.q, "w")
	next(t, taker)
	other := s.taker(t, s.q, "w2")
	next(t, other)
	nothing(t, s.taker(t, s.q, "w3"), 2*s.e.Lease)
	if j := s.want(t, id, job.Failed); !strings.Contains(j.Error, "worker lost") || j.Lost != 2 {
		t.Errorf("error %q lost %d", j.Error, j.Lost)
	}
}

func TestGiveBackIsNotCounted(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "a"))
	if err := l.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(t, id, job.InQueue)
	again := next(t, s.taker(t, s.q, "b"))
	if again.Job.Lost != 0 || again.Job.Run != 2 {
		t.Errorf("lost %d run %d, want 0 and 2", again.Job.Lost, again.Job.Run)
	}
}

func TestCancel(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		s := newSite(t)
		id := s.submit(t)
		if j, err := s.q.Cancel(t.Context(), s.e, id); err != nil || j.Status != job.Cancelled {
			t.Fatalf("got %v, %v", j, err)
		}
		s.empty(t)
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Errorf("again: %v", err)
		}
		if _, err := s.q.Retry(t.Context(), s.e, id); !errors.Is(err, job.ErrConflict) {
			t.Errorf("retry of a cancelled job: %v", err)
		}
	})
	t.Run("running", func(t *testing.T) {
		s := newSite(t)
		id := s.submit(t)
		l := next(t, s.taker(t, s.q, "w"))
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Changed():
		case <-time.After(time.Second):
			t.Fatal("the holder was not told within 1 s")
		}
		if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("extend: %v", err)
		}
		if _, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
			t.Errorf("complete: %v", err)
		}
		s.want(t, id, job.Cancelled)
	})
	t.Run("unknown", func(t *testing.T) {
		s := newSite(t)
		if _, err := s.q.Cancel(t.Context(), s.e, "nobody"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryRunsTheSameInputAgain(t *testing.T) {
	s := newSite(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("z", 1<<20) + `"}`)
	for name, input := range map[string]json.RawMessage{"inline": json.RawMessage(`{"n":7}`), "beside": big} {
		t.Run(name, func(t *testing.T) {
			id := s.submit(t, func(r *job.Request) { r.Input = input; r.S3Config = json.RawMessage(`{"accessId":"a"}`) })
			taker := s.taker(t, s.q, "w")
			defer taker.Close()
			if _, err := next(t, taker).Fail(t.Context(), "boom"); err != nil {
				t.Fatal(err)
			}
			if j := s.want(t, id, job.Failed); j.Error != "boom" {
				t.Errorf("error is %q", j.Error)
			}
			if _, err := s.q.Retry(t.Context(), s.e, id); err != nil {
				t.Fatal(err)
			}
			s.want(t, id, job.InQueue)
			l := next(t, taker)
			if string(l.Input) != string(input) || l.Job.Attempt != 2 || string(l.S3Config) != `{"accessId":"a"}` {
				t.Errorf("attempt %d with %d bytes", l.Job.Attempt, len(l.Input))
			}
			if _, err := l.Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if j := s.want(t, id, job.Completed); j.Retries() != 1 {
				t.Errorf("retries %d, want 1", j.Retries())
			}
		})
	}
}

func TestDeadlineEndsAForgottenRun(t *testing.T) {
	s := newSite(t)
	s.deadlines(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.ExecutionTimeout = time.Second })
	l := next(t, s.taker(t, s.q, "w"))
	w, err := s.q.Watch(s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	j, err := w.Wait(ctx)
	if err != nil || j.Status != job.TimedOut || j.Error != job.ErrTextTimedOut {
		t.Fatalf("got %+v, %v", j, err)
	}
	if j, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) && (err != nil || j.Status != job.TimedOut) {
		t.Errorf("complete: %v, %v", j, err)
	}
	s.empty(t)
	if _, err := s.q.Retry(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
}

func TestLateResultIsTimedOut(t *testing.T) {
	s := newSite(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.ExecutionTimeout = 50 * time.Millisecond })
	l := next(t, s.taker(t, s.q, "w"))
	eventually(t, "past the deadline", func() bool { return s.q.Until(l.Deadline()) < 0 })
	if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Status != job.TimedOut {
		t.Fatalf("got %v, %v", j, err)
	}
	s.want(t, id, job.TimedOut)
}

func TestTTLEndsAJobInAnyState(t *testing.T) {
	s := newSite(t)
	short := func(r *job.Request) { r.Policy.TTL = time.Second }
	w := s.taker(t, s.q, "w")
	finished := s.submit(t, short)
	if _, err := next(t, w).Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	running := s.submit(t, short)
	l := next(t, w)
	waiting := s.submit(t, short)
	for _, id := range []job.ID{finished, running, waiting} {
		eventually(t, "gone", func() bool {
			_, err := s.q.Status(t.Context(), s.e, id)
			return errors.Is(err, job.ErrNotFound)
		})
	}
	if _, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("complete after the ttl: %v", err)
	}
	s.empty(t)
}

func TestPurgeCancelsWhatWaitsAndSparesWhatRuns(t *testing.T) {
	s := newSite(t)
	running := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	const n = 700
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = s.submit(t, func(r *job.Request) { r.Policy.LowPriority = i%3 == 0 })
	}
	removed, err := s.q.Purge(t.Context(), s.e)
	if err != nil || removed != n {
		t.Fatalf("removed %d, %v; want %d", removed, err, n)
	}
	s.want(t, ids[0], job.Cancelled)
	s.want(t, ids[n-1], job.Cancelled)
	s.want(t, running, job.InProgress)
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.q.Purge(t.Context(), s.e); err != nil || removed != 0 {
		t.Errorf("again: %d, %v", removed, err)
	}
}

func TestLowPriority(t *testing.T) {
	s := newSite(t)
	low := func(r *job.Request) { r.Policy.LowPriority = true }
	l1 := s.submit(t, low)
	n1 := s.submit(t)
	w := s.taker(t, s.q, "w")
	for _, want := range []job.ID{n1, l1} {
		l := next(t, w)
		if l.Job.ID != want {
			t.Fatalf("got %s, want %s: normal jobs go first", l.Job.ID, want)
		}
		if _, err := l.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan *Lease, 1)
	go func() {
		l, err := w.Next(t.Context())
		if err == nil {
			got <- l
		}
	}()
	eventually(t, "the idle slot asks for low priority too", func() bool {
		c, err := s.JS.Consumer(t.Context(), streams.Jobs(s.e.ID), streams.Consumer(job.LowPriority))
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
	s.submit(t, low)
	select {
	case l := <-got:
		if d := l.Job.Delay(); d > 100*time.Millisecond {
			t.Errorf("started after %v, want at most 100 ms", d)
		}
	case <-time.After(soon):
		t.Fatal("an idle worker did not start a low-priority job")
	}
}

func TestSetTTL(t *testing.T) {
	s := newSite(t)
	t.Run("waiting, shorter", func(t *testing.T) {
		id := s.submit(t)
		j, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour)
		if err != nil || j.Status != job.InQueue || !j.Expires.Equal(j.Submitted.Add(time.Hour).Truncate(time.Millisecond)) && j.Expires.Sub(j.Submitted) != time.Hour {
			t.Fatalf("got %+v, %v", j, err)
		}
		taker := s.taker(t, s.q, "w")
		defer taker.Close()
		l := next(t, taker)
		if got := l.Job.Expires.Sub(l.Job.Submitted); got != time.Hour || string(l.Input) != `{"n":1}` {
			t.Errorf("runs with ttl %v and input %s", got, l.Input)
		}
		_, _ = l.Complete(t.Context(), nil)
	})
	t.Run("waiting, longer", func(t *testing.T) {
		big := json.RawMessage(`{"x":"` + strings.Repeat("z", 1<<20) + `"}`)
		id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second; r.Input = big })
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
			t.Fatal(err)
		}
		eventually(t, "past the old ttl", func() bool { return s.q.Until(s.status(t, id).Submitted.Add(2500*time.Millisecond)) < 0 })
		taker := s.taker(t, s.q, "w")
		defer taker.Close()
		l := next(t, taker)
		if string(l.Input) != string(big) || l.Job.Run != 1 {
			t.Errorf("input %d bytes, run %d", len(l.Input), l.Job.Run)
		}
		_, _ = l.Complete(t.Context(), nil)
		s.want(t, id, job.Completed)
	})
	t.Run("running, longer", func(t *testing.T) {
		id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
		taker := s.taker(t, s.q, "w")
		defer taker.Close()
		l := next(t, taker)
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
			t.Fatal(err)
		}
		eventually(t, "past the old ttl", func() bool { return s.q.Until(l.Job.Submitted.Add(2500*time.Millisecond)) < 0 })
		if err := l.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Fail(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.q.Retry(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		if l := next(t, taker); l.Job.Attempt != 2 || string(l.Input) != `{"n":1}` {
			t.Errorf("attempt %d input %s", l.Job.Attempt, l.Input)
		}
	})
	t.Run("over", func(t *testing.T) {
		id := s.submit(t)
		eventually(t, "over", func() bool { return s.q.Until(s.status(t, id).Submitted.Add(time.Second)) < 0 })
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Second); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSilentHolderWithALongerTTLIsFailed(t *testing.T) {
	s := newSite(t)
	s.deadlines(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
	next(t, s.taker(t, s.q, "dies"))
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failed", func() bool { return s.status(t, id).Status == job.Failed })
	if _, err := s.q.Retry(t.Context(), s.e, id); err != nil {
		t.Errorf("retry: %v", err)
	}
}

func TestGiveBackWithALongerTTL(t *testing.T) {
	s := newSite(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 2 * time.Second })
	l := next(t, s.taker(t, s.q, "a"))
	if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "past the old ttl", func() bool { return s.q.Until(l.Job.Submitted.Add(2500*time.Millisecond)) < 0 })
	if err := l.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := next(t, s.taker(t, s.q, "b"))
	if again.Job.Lost != 0 || again.Job.Run != 2 {
		t.Errorf("lost %d run %d, want 0 and 2", again.Job.Lost, again.Job.Run)
	}
}

func TestChunks(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	long := `"` + strings.Repeat("é", job.MaxChunk) + `"`
	exact := `"` + strings.Repeat("e", job.MaxChunk-2) + `"`
	for _, c := range []string{`{"output":1}`, exact, long} {
		if err := l.Emit(t.Context(), json.RawMessage(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Emit(t.Context(), json.RawMessage(`[`+long+`]`)); !errors.Is(err, ErrChunkTooLarge) {
		t.Errorf("got %v, want ErrChunkTooLarge", err)
	}
	chunks, err := s.q.Chunks(t.Context(), s.e, id, 0, 100)
	if err != nil || len(chunks) < 4 {
		t.Fatalf("got %d chunks, %v", len(chunks), err)
	}
	if string(chunks[0].Data) != `{"output":1}` || string(chunks[1].Data) != exact {
		t.Error("chunks are not verbatim")
	}
	var text strings.Builder
	for _, c := range chunks[2:] {
		var part string
		if err := json.Unmarshal(c.Data, &part); err != nil || len(c.Data) > job.MaxChunk {
			t.Fatalf("a piece of %d bytes: %v", len(c.Data), err)
		}
		text.WriteString(part)
	}
	if text.String() != strings.Repeat("é", job.MaxChunk) {
		t.Error("the pieces are not the string")
	}
	rest, err := s.q.Chunks(t.Context(), s.e, id, chunks[1].Seq, 100)
	if err != nil || len(rest) != len(chunks)-2 {
		t.Errorf("after the second: %d, %v", len(rest), err)
	}
}

func TestDeleteEndpoint(t *testing.T) {
	s := newSite(t)
	running := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	waiting := s.submit(t)
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.want(t, running, job.Cancelled)
	s.want(t, waiting, job.Cancelled)
	if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestUnavailableWithinFiveSeconds(t *testing.T) {
	s := newSite(t)
	s.Stop()
	start := time.Now()
	_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
	if !errors.Is(err, ErrUnavailable) || time.Since(start) > 5*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// The queue message has the age of the first ttl; nobody may meet it for ever.
func TestShorterTTLLeavesNothingInTheQueue(t *testing.T) {
	s := newSite(t)
	running := s.submit(t)
	next(t, s.taker(t, s.q, "silent"))
	waiting := s.submit(t)
	for _, id := range []job.ID{running, waiting} {
		if _, err := s.q.SetTTL(t.Context(), s.e, id, time.Second); err != nil && !errors.Is(err, job.ErrNotFound) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taker := s.taker(t, s.q, "w")
	go func() {
		for ctx.Err() == nil {
			_, _ = taker.Next(ctx) // it may still begin within the second; then it expires in its hands
		}
	}()
	eventually(t, "both are gone", func() bool {
		for _, id := range []job.ID{running, waiting} {
			if _, err := s.q.Status(t.Context(), s.e, id); !errors.Is(err, job.ErrNotFound) {
				return false
			}
		}
		return true
	})
	taker.Close()
	last := s.taker(t, s.q, "last")
	go func() { _, _ = last.Next(ctx) }()
	s.empty(t)
}
