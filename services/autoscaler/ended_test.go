package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// crasher is a driver whose pods end at once, by a clock that is ahead of that of this test.
type crasher struct {
	*engine
	ahead time.Duration
	mu    sync.Mutex
	ended map[string]driver.Instance
	n     int // starts
}

func (s *env) crasher(ahead time.Duration) *crasher {
	return &crasher{engine: s.engine("machine"), ahead: ahead, ended: map[string]driver.Instance{}}
}

func (c *crasher) Start(_ context.Context, start driver.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.ended[start.PodID] = driver.Instance{PodID: start.PodID, Life: start.Life, Code: 1, Reason: "boom", Started: time.Now().Add(c.ahead)}
	return nil
}

func (c *crasher) List(context.Context) ([]driver.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []driver.Instance
	for _, i := range c.ended {
		all = append(all, i)
	}
	return all, nil
}

func (c *crasher) starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Clocks of machines differ.
func TestACrashIsOnRecordWhateverTheClockOfItsMachine(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, 0, time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			s := newEnv(t)
			c := s.crasher(ahead)
			s.pod("p")
			s.autoscaler(c)
			var p pod.Pod
			testenv.EventuallyNone(t, func() string {
				if p = s.get("p"); p.Status == pod.Exited || c.starts() > 1 {
					return ""
				}
				return fmt.Sprintf("got %s", p.Status)
			})
			if n := c.starts(); n != 1 || !strings.Contains(p.Change, "ended by itself with code 1: boom") {
				t.Errorf("got %d starts, %s (%s), want one, and why it ended", n, p.Status, p.Change)
			}
		})
	}
}

func TestWhatHadEndedBeforeThisProgramLookedIsNoCrash(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			s := newEnv(t)
			c := s.crasher(ahead)
			if err := c.Start(t.Context(), driver.Start{PodID: "p"}); err != nil {
				t.Fatal(err)
			}
			s.pod("p", at, func(p *pod.Pod) { p.Started = p.Created })
			s.autoscaler(c)
			if p := s.status("p", pod.Exited); p.Change != vanished || c.starts() != 1 {
				t.Errorf("got %q, %d starts, want %q", p.Change, c.starts(), vanished)
			}
		})
	}
}

// A program that runs once for each job, given as the command of a fleet, ends well and at
// once, and says nothing.
func TestACommandThatIsNoWorkerIsSaidToBeNone(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.agentOf(e)
	t.Cleanup(func() { _ = e.Close(context.Background()); a.logs.close() })
	ready := func(p *pod.Pod) { p.Phases.Ready = p.Created }
	for id, c := range map[string]struct {
		edit []func(*pod.Pod)
		code int
		want string
	}{
		"cat":    {[]func(*pod.Pod){of("ep")}, 0, "it ended by itself with code 0 before it asked for jobs, as a worker does (for a program that runs once for each job the command is 'flightline worker ep -- PROGRAM'): x"},
		"fails":  {[]func(*pod.Pod){of("ep")}, 1, "it ended by itself with code 1: x"},
		"worked": {[]func(*pod.Pod){of("ep"), ready}, 0, "it ended by itself with code 0: x"},
		"pod":    {nil, 0, "it ended by itself with code 0: x"},
	} {
		s.pod(id, append(c.edit, at)...)
		a.ended(t.Context(), s.get(id), driver.Instance{PodID: id, Code: c.code, Reason: "x"})
		if p := s.get(id); p.Change != c.want {
			t.Errorf("%s: got %q, want %q", id, p.Change, c.want)
		}
	}
}

// Gateways give its jobs back at once, and look for those that it did not name.
func TestAWorkerThatEndsLeavesWordOfItsJobs(t *testing.T) {
	s := newEnv(t)
	a := s.agentOf(s.engine("machine"))
	t.Cleanup(a.logs.close)
	drains := func(p *pod.Pod) { p.Drain.At = p.Created }
	for id, c := range map[string]struct {
		edit []func(*pod.Pod)
		jobs []string
		code int
		gone bool
	}{
		"crashed":       {nil, []string{"a-job"}, 1, true},
		"crashed-early": {nil, nil, 1, true},
		"drained":       {[]func(*pod.Pod){drains}, nil, 0, false},
		"drained-busy":  {[]func(*pod.Pod){drains}, []string{"a-job"}, 0, true},
	} {
		s.pod(id, append(c.edit, at, of("ep"))...)
		if err := s.registry.Workers.Beat(t.Context(), registry.Worker{ID: id, Endpoint: "ep", State: registry.WorkerRunning, Running: c.jobs}); err != nil {
			t.Fatal(err)
		}
		testenv.EventuallyNone(t, func() string { return s.stateOf("ep", id, registry.WorkerRunning) })
		a.ended(t.Context(), s.get(id), driver.Instance{PodID: id, Code: c.code})
		if p := s.get(id); !slices.Equal(p.Cut, c.jobs) || p.Gone.IsZero() == c.gone || p.Failed() != (c.code != 0) {
			t.Errorf("%s: got %v, gone %s, failed %t, want %v, gone %t, failed %t", id, p.Cut, p.Gone, p.Failed(), c.jobs, c.gone, c.code != 0)
		}
	}
}

// refreshing makes the pod of a worker of "ep" that says that it restarts itself.
func (s *env) refreshing(id string) {
	s.t.Helper()
	s.pod(id, at, of("ep"))
	_, _, err := s.registry.Tokens.IssueForFleet(s.t.Context(), "ep", id)
	if err == nil {
		err = s.registry.Tokens.Refresh(s.t.Context(), "ep", id, s.queue.Now())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// The clock of an engine may be ahead of the server's.
func TestAWorkerThatRestartsItselfIsStartedAgainWhateverTheClock(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.agentOf(e)
	t.Cleanup(func() { _ = e.Close(context.Background()); a.logs.close() })
	s.endpoint("ep", bounds(0, 1))
	s.refreshing("w")
	started := time.Now().Add(time.Minute)
	a.ended(t.Context(), s.get("w"), driver.Instance{PodID: "w", Started: started})
	if p := s.get("w"); p.Status != pod.Running || p.Refreshed.IsZero() {
		t.Errorf("got %s: %s, restarted itself at %s, want it started again, and when", p.Status, p.Change, p.Refreshed)
	}
}

// Both look at the container that ended; the start by the first one makes a new token.
func TestAWorkerOfTwoAutoscalersThatRestartsItselfIsStartedAgainOnce(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	first, second := s.agentOf(e), s.agentOf(e)
	t.Cleanup(func() { _ = e.Close(context.Background()); first.logs.close(); second.logs.close() })
	s.endpoint("ep", bounds(0, 1))
	s.refreshing("w")
	seen, i := s.get("w"), driver.Instance{PodID: "w", Endpoint: "ep", Started: time.Now()}
	for _, a := range []*agent{first, second} {
		a.ended(t.Context(), seen, i)
	}
	if p := s.get("w"); p.Status != pod.Running || p.Starts != 1 || e.starts("w") != 1 {
		t.Errorf("got %s: %s, start %d of 1, %d by the engine, want it started again once", p.Status, p.Change, p.Starts, e.starts("w"))
	}
	second.reconcilePod(t.Context(), s.get("w"), i, true) // by an older look at the engine
	second.work.Wait()
	if p := s.get("w"); p.Status != pod.Running || e.starts("w") != 1 {
		t.Errorf("got %s: %s, %d starts, want that it runs on", p.Status, p.Change, e.starts("w"))
	}
}

// A look at the engine may be older than a request to start the pod again.
func TestAnEndThatWasSeenBeforeARestartIsNotNoted(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.agentOf(e)
	t.Cleanup(a.logs.close)
	s.pod("p", at)
	seen := s.get("p")
	s.move("p", pod.Restart, nil)
	a.ended(t.Context(), seen, driver.Instance{PodID: "p", Code: 1})
	if p := s.get("p"); p.Status != pod.Running {
		t.Errorf("got %s: %s, want it to be started again", p.Status, p.Change)
	}
}
