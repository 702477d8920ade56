package autoscaler

import (
	"fmt"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// never is a pause that no test lives to see the end of.
const never = time.Hour

// submit puts a job into the endpoint's queue, as another process does, and returns its id.
func (s *env) submit(e endpoint.Endpoint, low bool) job.ID {
	s.t.Helper()
	id, r := queue.NewID(job.Async), job.Request{Input: []byte(`{}`), Policy: job.Policy{LowPriority: low}}
	if _, err := s.queue.Submit(s.t.Context(), e, id, job.Async, r); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// elected runs an autoscaler that leads if no other one does.
func (s *env) elected(id string, drivers ...driver.Driver) {
	s.t.Helper()
	reg, q := s.peer()
	election, err := registry.NewElection(s.t.Context(), s.JS, registry.RoleAutoscaler, id, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := New(Config{Every: never}, Deps{Queue: q, Registry: reg, Events: s.events(), Election: election, Drivers: drivers})
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Background(s.t, a.Run)
}

// looked waits until the leader has looked at the endpoint.
func (s *env) looked(id string) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		if _, err := s.registry.Scaling.Last(s.t.Context(), id); err != nil {
			return err.Error()
		}
		return ""
	})
}

// The leader has no machine, and the host that has one does not lead. Neither
// has a timer that would help.
func TestTheFirstJobWaitsForNoTimer(t *testing.T) {
	s := newEnv(t)
	made := map[string]endpoint.Endpoint{}
	for _, id := range []string{"one", "two"} {
		made[id] = s.endpoint(id)
	}
	s.elected("leader")
	s.looked("one")
	s.looked("two")
	e := s.engine("machine")
	s.elected("host", e)
	testenv.EventuallyNone(s.t, func() string {
		if all, err := s.registry.Instances.List(t.Context()); err != nil || len(all) != 1 {
			return fmt.Sprintf("got %v, %v, want the host", all, err)
		}
		return ""
	})
	s.submit(made["one"], true) // is nobody's business
	s.submit(made["two"], false)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("two", "two-0-1", registry.WorkerIdle) })
	if d, err := s.registry.Scaling.Last(t.Context(), "two"); err != nil || d.Reason != registry.ScalingFromZero || d.Wanted != 1 {
		t.Errorf("got %s, %d wanted, %v; want one from zero", d.Reason, d.Wanted, err)
	}
	if n := e.starts("one-0-1"); n != 0 {
		t.Errorf("a low-priority job: got %d starts, want none", n)
	}
	s.submit(made["one"], false)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("one", "one-0-1", registry.WorkerIdle) })
}

func TestIdleQueuesAreNotCountedAgainAndAgain(t *testing.T) {
	s := newEnv(t)
	var last endpoint.Endpoint
	const endpoints = 5
	for i := range endpoints {
		last = s.endpoint(fmt.Sprint("ep", i), func(e *endpoint.Endpoint) {
			if i == 0 {
				e.WorkersMin = 1 // its worker is idle
			}
		})
	}
	asked := testenv.Subscribe(t, s.NC, bus.ConsumerInfo("*", streams.Consumer(job.Normal)))
	e := s.engine("machine")
	s.autoscaler(e)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep0", "ep0-0-1", registry.WorkerIdle) })
	testenv.EventuallyNone(s.t, func() string { // thirty looks without a question
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
	testenv.EventuallyNone(s.t, func() string {
		_, err := s.queue.Submit(t.Context(), made(t, s, "ep2"), queue.NewID(job.Async), job.Async, job.Request{Input: []byte(`{}`)})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	s.status("ep2-0-1", pod.Running)
}

func made(t *testing.T, s *env, id string) endpoint.Endpoint {
	t.Helper()
	e, err := s.registry.Endpoints.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// An owner with workers of its own has jobs for which none is to be started.
func TestJobsThatOthersTakeAtOnceAreNotLookedForAgainAndAgain(t *testing.T) {
	s := newEnv(t)
	s.autoscaler()
	for id, tt := range map[string]struct {
		change []func(*endpoint.Endpoint)
		most   uint64
	}{
		"owners": {[]func(*endpoint.Endpoint){elsewhere, bounds(0, 3)}, maxHastyRounds + 4},
		"off":    {[]func(*endpoint.Endpoint){elsewhere, bounds(0, 0), func(e *endpoint.Endpoint) { e.NoWorkers = true }}, 4},
	} {
		e := s.endpoint(id, tt.change...)
		s.looked(id)
		w, err := s.queue.Consume(t.Context(), e, "own", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		asked := testenv.Subscribe(t, s.NC, bus.ConsumerInfo(streams.Jobs(id), streams.Consumer(job.Normal)))
		began := time.Now()
		for range 60 {
			s.submit(e, false)
			lease, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lease.Complete(t.Context(), []byte(`1`)); err != nil {
				t.Fatal(err)
			}
			<-time.After(30 * time.Millisecond)
		}
		most := tt.most + 2*uint64(time.Since(began)/externalInterval) // it looks now and then in any case
		if n, _, err := asked.Pending(); err != nil || uint64(n) > most {
			t.Errorf("%s: got %d questions, %v, want %d at most", id, n, err, most)
		}
	}
}

// leader looks at nothing by itself.
func (s *env) leader() *leader {
	s.t.Helper()
	service, err := New(Config{}, Deps{Queue: s.queue, Registry: s.registry, Events: s.events()})
	if err != nil {
		s.t.Fatal(err)
	}
	l := &leader{Service: service, endpoints: map[string]*endpointState{}, reconciler: newReconciler(service), arrivals: s.queue.EnqueueNotifier()}
	s.t.Cleanup(l.arrivals.Close)
	return l
}

func TestAMessageThatIsLostIsNotReliedUponTwice(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep")
	l, m, now := s.leader(), &endpointState{}, s.queue.Now()
	count := func(after time.Duration) queue.Stats {
		t.Helper()
		got, err := l.count(t.Context(), now.Add(after), e, m)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	count(0)
	if count(2 * announceDelay); !m.count.quiet {
		t.Fatal("got it counted, want it listened to")
	}
	s.submit(e, false)
	<-l.arrivals.Notifications() // and no reader gets it
	if got := count(3 * announceDelay); got.Queued != 0 {
		t.Fatalf("got %d jobs, want none heard of", got.Queued)
	}
	after := 3 * announceDelay
	testenv.EventuallyNone(s.t, func() string { // a count may be some moments old
		if after += recountInterval; count(after).Queued == 1 {
			return ""
		}
		return "no job found"
	})
	if l.arrivals.Awaits("ep", false) {
		t.Error("got the next job awaited as if it would be announced, want it counted")
	}
}

// A worker that its owner drains does its last job, and is no reason for another.
func TestWorkersThatDrainAreNotTakenForBusy(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep", elsewhere, bounds(0, 3))
	for id, draining := range map[string]bool{"busy": false, "says-so": true, "by-token": false, "by-record": false} {
		w := registry.Worker{ID: id, Endpoint: "ep", State: registry.WorkerRunning, Running: []string{"job-" + id}, Native: id != "by-token", Draining: draining}
		if err := s.registry.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.registry.Tokens.Issue(t.Context(), "ep", "by-token"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Tokens.Drain(t.Context(), "ep", "by-token"); err != nil {
		t.Fatal(err)
	}
	s.pod("by-record", of("ep"), func(p *pod.Pod) { p.Driver, p.Drain.At = "", p.Created })
	l := s.leader()
	testenv.EventuallyNone(s.t, func() string {
		v, err := l.readView(t.Context())
		if err != nil {
			return err.Error()
		}
		in := l.sample(t.Context(), v, e, &endpointState{})
		if all, working := len(in.members), count(in.members, busy); all != 4 || working != 1 {
			return fmt.Sprintf("got %+v, %q, want one of four busy", in.members, in.unknown)
		}
		return ""
	})
}

// With a thousand endpoints, these are most of the requests of an idle process.
func TestAnEmptyQueueIsRecountedWithOneRequest(t *testing.T) {
	s := newEnv(t)
	e := s.endpoint("ep")
	l, m, now := s.leader(), &endpointState{}, s.queue.Now()
	after := announceDelay
	count := func() {
		t.Helper()
		if _, err := l.count(t.Context(), now.Add(after), e, m); err != nil {
			t.Fatal(err)
		}
	}
	for count(); !m.count.quiet; count() {
		after += announceDelay
	}
	listen := func(subject string) func() int {
		sub := testenv.Subscribe(t, s.NC, subject)
		return func() int { n, _, _ := sub.Pending(); return n }
	}
	states := listen(bus.StreamInfo(streams.Jobs("ep")))
	counts := listen(bus.ConsumerInfo(streams.Jobs("ep"), "*"))
	testenv.EventuallyNone(t, func() string { // a count may be some moments old
		after += recountInterval
		if count(); !m.count.quiet {
			t.Fatal("got it counted, want it listened to")
		}
		if states() == 0 {
			return "nothing was asked"
		}
		return ""
	})
	if n := counts(); n > 0 {
		t.Errorf("got %d questions about consumers, want none", n)
	}
}

// What a round allocates for each endpoint that is not due makes an idle process
// large.
func TestARoundAllocatesNothingForEndpointsThatAreNotDue(t *testing.T) { //nolint:paralleltest // it counts what this process allocates
	s := openEnv(t, 0)
	const endpoints = 100
	for i := range endpoints {
		e := ep(elsewhere)
		e.ID = fmt.Sprint("ep", i)
		if _, err := s.registry.Endpoints.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	l := s.leader()
	testenv.EventuallyNone(t, func() string { // beside what the others do meanwhile
		const rounds = 10
		allocs := testing.AllocsPerRun(rounds, func() { l.runRound(t.Context(), nil) })
		if len(l.endpoints) == endpoints && allocs < endpoints/2 {
			return ""
		}
		return fmt.Sprintf("got %.0f allocations in a round with %d endpoints, want fewer than one for two endpoints", allocs, len(l.endpoints))
	})
}
