package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/streams"
)

// never is a pause that no test lives to see the end of.
const never = time.Hour

// submit puts a job into the endpoint's queue, as another process does.
func (s *site) submit(e endpoint.Endpoint, low bool) {
	s.t.Helper()
	r := job.Request{Input: []byte(`{}`), Policy: job.Policy{LowPriority: low}}
	if _, err := s.queue.Submit(s.t.Context(), e, queue.NewID(job.Async), job.Async, r); err != nil {
		s.t.Fatal(err)
	}
}

// elected runs an autoscaler that leads if no other one does.
func (s *site) elected(id string, drivers ...driver.Driver) {
	s.t.Helper()
	reg, q := s.peer()
	election, err := registry.NewElection(s.t.Context(), s.JS, registry.RoleAutoscaler, id, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := New(Config{Every: never}, Deps{Queue: q, Registry: reg, Election: election, Drivers: drivers})
	if err != nil {
		s.t.Fatal(err)
	}
	s.background(a.Run)
}

// looked waits until the leader has looked at the endpoint.
func (s *site) looked(id string) {
	s.t.Helper()
	s.eventually(func() string {
		if _, err := s.registry.Scaling.Last(s.t.Context(), id); err != nil {
			return err.Error()
		}
		return ""
	})
}

// The leader has no machine, and the host that has one does not lead. Neither
// has a timer that would help.
func TestTheFirstJobWaitsForNoTimer(t *testing.T) {
	s := newSite(t)
	made := map[string]endpoint.Endpoint{}
	for _, id := range []string{"one", "two"} {
		made[id] = s.endpoint(id)
	}
	s.elected("leader")
	s.looked("one")
	s.looked("two")
	e := s.engine("machine")
	s.elected("host", e)
	s.eventually(func() string {
		if all, err := s.registry.Instances.List(t.Context()); err != nil || len(all) != 1 {
			return fmt.Sprintf("got %v, %v, want the host", all, err)
		}
		return ""
	})
	s.submit(made["one"], true) // is nobody's business
	s.submit(made["two"], false)
	s.eventually(func() string { return s.stateOf("two", "two-0-1", registry.WorkerIdle) })
	if d, err := s.registry.Scaling.Last(t.Context(), "two"); err != nil || d.Reason != registry.ScalingFromZero || d.Wanted != 1 {
		t.Errorf("got %s, %d wanted, %v; want one from zero", d.Reason, d.Wanted, err)
	}
	if n := e.starts("one-0-1"); n != 0 {
		t.Errorf("a low-priority job: got %d starts, want none", n)
	}
	s.submit(made["one"], false)
	s.eventually(func() string { return s.stateOf("one", "one-0-1", registry.WorkerIdle) })
}

func TestIdleQueuesAreNotCountedAgainAndAgain(t *testing.T) {
	s := newSite(t)
	var last endpoint.Endpoint
	const endpoints = 5
	for i := range endpoints {
		last = s.endpoint(fmt.Sprint("ep", i), func(e *endpoint.Endpoint) {
			if i == 0 {
				e.WorkersMin = 1 // its worker is idle
			}
		})
	}
	asked, err := s.NC.SubscribeSync(streams.ConsumerInfo("*", streams.Consumer(job.Normal)))
	if err != nil {
		t.Fatal(err)
	}
	e := s.engine("machine")
	s.autoscaler(e)
	s.eventually(func() string { return s.stateOf("ep0", "ep0-0-1", registry.WorkerIdle) })
	s.eventually(func() string { // thirty looks without a question
		before, _, _ := asked.Pending()
		<-time.After(1500 * time.Millisecond)
		if after, _, _ := asked.Pending(); after > before || after < endpoints {
			return fmt.Sprintf("got %d new questions about %d empty queues, and %d in all; want none", after-before, endpoints, after)
		}
		return ""
	})
	s.submit(last, false)
	s.status(last.ID+"-0-1", pod.Running)
	// What was not told while the server was away is counted.
	s.Stop()
	s.Start()
	s.eventually(func() string {
		_, err := s.queue.Submit(t.Context(), made(t, s, "ep2"), queue.NewID(job.Async), job.Async, job.Request{Input: []byte(`{}`)})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	s.status("ep2-0-1", pod.Running)
}

func made(t *testing.T, s *site, id string) endpoint.Endpoint {
	t.Helper()
	e, err := s.registry.Endpoints.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
