package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestBudgetSpent(t *testing.T) {
	for name, test := range map[string]struct {
		budget int
		f      sameFailure
		want   string
	}{
		"no budget":          {0, sameFailure{jobs: 900, workers: 9, cause: "no model"}, ""},
		"less than it":       {20, sameFailure{jobs: 19, workers: 2, cause: "no model"}, ""},
		"as many":            {20, sameFailure{jobs: 20, workers: 2, cause: "no model"}, "its failure budget is used up, the last 20 jobs failed on 2 workers for one cause: no model"},
		"one worker is none": {1, sameFailure{jobs: 3, workers: 1, cause: "no"}, "its failure budget is used up, the last 3 jobs failed on 1 worker for one cause: no"},
		"a long cause":       {1, sameFailure{jobs: 1, workers: 1, cause: strings.Repeat("x", 2000)}, "its failure budget is used up, the last 1 job failed on 1 worker for one cause: " + strings.Repeat("x", 2000)},
	} {
		if got := budgetSpent(endpoint.Endpoint{FailureBudget: test.budget}, test.f); got != bounded(test.want) {
			t.Errorf("%s: got %q, want %q", name, got, bounded(test.want))
		}
	}
}

// writeEnd writes the end of a job to the log, as if it had happened now.
func (s *env) writeEnd(log *events.Log, n int, e events.Event) {
	s.t.Helper()
	now := s.queue.Now()
	e.Endpoint, e.Job, e.Attempt, e.Run, e.Mode, e.Class = "ep", job.ID(fmt.Sprint("job-", n)), 1, 1, job.Async, job.Normal
	e.At, e.Submitted, e.Queued, e.Started, e.Finished = now, now, now, now, now
	e.Expires, e.RetainUntil = now.Add(time.Hour), now.Add(time.Hour)
	if err := log.Append(s.t.Context(), e); err != nil {
		s.t.Fatal(err)
	}
}

// pausedQueue waits until the record and the queue agree, and returns the endpoint.
func (s *env) pausedQueue(want bool) (e endpoint.Endpoint) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		var err error
		if e, err = s.registry.Endpoints.Find(s.t.Context(), "ep"); err != nil || e.Paused(s.queue.Now()) != want {
			return fmt.Sprintf("paused until %v, %v, want paused %t", e.PausedUntil, err, want)
		}
		c, err := s.JS.Consumer(s.t.Context(), streams.Jobs("ep"), streams.Consumer(job.Normal))
		if err != nil {
			return err.Error()
		}
		if got := c.CachedInfo().Paused; got != want {
			return fmt.Sprintf("the queue is paused: %t, want %t", got, want)
		}
		return ""
	})
	return e
}

func (s *env) resume() endpoint.Endpoint {
	s.t.Helper()
	s.update("ep", func(e *endpoint.Endpoint) { e.PausedUntil, e.PauseReason = s.queue.Now(), "" })
	e, err := s.registry.Endpoints.Find(s.t.Context(), "ep")
	if err == nil {
		err = s.queue.ApplyPause(s.t.Context(), e)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, "what ends now ends after the pause: the log keeps milliseconds", func() bool {
		return s.queue.Now().Sub(e.PausedUntil) > 5*time.Millisecond
	})
	return e
}

func TestAUsedUpBudgetPausesTheEndpoint(t *testing.T) {
	t.Parallel()
	const budget = 6
	for name, driver := range map[string]string{"of a fleet": "process", "of workers of somebody else": "external"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openEnv(t, 0)
			log := s.events()
			s.endpoint("ep", func(e *endpoint.Endpoint) { e.FailureBudget, e.Fleet.Driver = budget, driver })
			failure := func(n int) events.Event {
				return ended(fmt.Sprint("worker-", n%2), fmt.Sprintf("RuntimeError: no model %d", n))
			}
			for n := range budget {
				s.writeEnd(log, n, failure(n))
			}
			s.autoscaler(s.engine("machine"))
			e := s.pausedQueue(true)
			if want := "its failure budget is used up, the last 6 jobs failed on 2 workers for one cause: RuntimeError: no model 5"; e.PauseReason != want {
				t.Errorf("got reason %q, want %q", e.PauseReason, want)
			}
			if driver == "process" {
				testenv.EventuallyNone(t, func() string {
					d, err := s.registry.Scaling.Last(t.Context(), "ep")
					if err != nil || d.Reason != registry.ScalingPaused || !strings.HasSuffix(d.Text, e.PauseReason) {
						return fmt.Sprintf("got %s: %s, %v, want paused, with the reason", d.Reason, d.Text, err)
					}
					return ""
				})
			}
			// After a resume the count begins at zero: one failure fewer than the budget
			// pauses nothing, the next one does.
			s.resume()
			l := &leader{Service: &Service{events: log}}
			for n := range budget - 1 {
				s.writeEnd(log, budget+n, failure(n))
			}
			e = s.pausedQueue(false)
			if f, err := l.budgetUsed(t.Context(), e); err != nil || f.jobs != budget-1 {
				t.Errorf("got %d failures in a row after the resume, %v, want %d", f.jobs, err, budget-1)
			}
			s.writeEnd(log, 2*budget, failure(0))
			s.pausedQueue(true)
		})
	}
}

// A leader that crashed between the record and the queue leaves the pause to the next.
func TestAPauseByTheBudgetIsAppliedByTheNextLeader(t *testing.T) {
	s := newEnv(t)
	s.endpoint("ep")
	s.update("ep", func(e *endpoint.Endpoint) {
		e.PausedUntil, e.PauseReason = s.queue.Now().Add(time.Hour), "its failure budget is used up"
	})
	s.autoscaler(s.engine("machine"))
	s.pausedQueue(true)
}

// More failures than one page has are counted, and no more than the row.
func TestFailuresInRowReadsPages(t *testing.T) {
	s := newEnv(t)
	log := s.events()
	made := s.endpoint("ep", func(e *endpoint.Endpoint) { e.FailureBudget = 1000 })
	var list []events.Event
	now := s.queue.Now()
	const row = 3 * failuresPage
	for n := range row + 1 {
		e := ended("worker", "no model")
		if n == 0 {
			e = ended("worker", "")
		}
		e.Endpoint, e.Job, e.Attempt, e.Run, e.Mode, e.Class = "ep", job.ID(fmt.Sprint("job-", n)), 1, 1, job.Async, job.Normal
		e.At, e.Submitted, e.Queued, e.Started, e.Finished, e.Expires, e.RetainUntil = now, now, now, now, now, now.Add(time.Hour), now.Add(time.Hour)
		list = append(list, e)
	}
	if err := log.Append(t.Context(), list...); err != nil {
		t.Fatal(err)
	}
	l := &leader{Service: &Service{events: log}}
	if f, err := l.budgetUsed(t.Context(), made); err != nil || f.jobs != row || f.workers != 1 {
		t.Errorf("got %+v, %v, want %d jobs on one worker", f, err, row)
	}
	made.FailureBudget = failuresPage
	if f, err := l.budgetUsed(t.Context(), made); err != nil || f.jobs != failuresPage {
		t.Errorf("got %+v, %v, want as many as the budget, %d", f, err, failuresPage)
	}
}
