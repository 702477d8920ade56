package autoscaler

import (
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/testenv"
)

// The server's clock is set forth by an hour, and back: workers that load have as long as
// before, and those of an endpoint that is deleted go at once.
func TestAStepOfTheServersClockHoldsUpNoFleet(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	e.newborn = mute
	clock := testenv.NewSteppedClock(t, s.Config())
	q, err := queue.New(t.Context(), testenv.Connect(t, clock.Config), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	s.queueOf = q
	s.endpoint("loads", bounds(1, 1))
	gone := []string{"first", "second"}
	for _, id := range gone {
		s.endpoint(id, bounds(1, 1))
	}
	s.autoscaler(e)
	testenv.Eventually(t, "all run", func() bool { return len(e.pods()) == 3 })
	for i, by := range []time.Duration{time.Hour, 0} {
		clock.Set(by)
		testenv.Eventually(t, "the step is seen", func() bool { return q.Until(time.Now().Add(by)).Abs() < time.Minute })
		deleted, err := s.registry.Endpoints.Get(t.Context(), gone[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		s.status(gone[i]+"-0-1", pod.Terminated)
		if p := s.get("loads-0-1"); p.Status != pod.Running {
			t.Fatalf("the clock at %s: got %s: %s, want that it loads on", by, p.Status, p.Change)
		}
	}
}

// The clock of a machine may be hours behind that of the server, as until it is set after a
// start: what it starts is not taken for the worker of an earlier pod, and goes on.
func TestAMachineWhoseClockIsBehindStartsEachWorkerOnce(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	clock := testenv.NewSteppedClock(t, s.Config())
	clock.Set(2 * clockSkew)
	q, err := queue.New(t.Context(), testenv.Connect(t, clock.Config), queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	s.queueOf = q
	s.endpoint("first", bounds(1, 1))
	s.autoscaler(e)
	for _, id := range []string{"second", "third"} { // each is started by a look at all pods of the machine
		before := len(e.pods())
		s.endpoint(id, bounds(1, 1))
		testenv.Eventually(t, "it runs", func() bool { return len(e.pods()) > before })
		s.status(id+"-0-1", pod.Running)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, n := range e.started {
		if n > 1 {
			t.Errorf("%s was started %d times, want once", id, n)
		}
	}
}

// A container was started by a clock that was set later, as that of a machine that starts up with
// a wrong one.
func TestAStepOfTheMachinesClockMakesNoWorkerAnOlderOne(t *testing.T) {
	const run, step = 10 * time.Minute, 2 * clockSkew
	for name, test := range map[string]struct {
		started, now, steady time.Time
		madeAgo              time.Duration
		want                 bool
	}{
		"of this pod":                        {noon, noon.Add(run), noon.Add(run), run, false},
		"of an earlier pod":                  {noon, noon.Add(step), noon.Add(step), run, true},
		"the clock was set forward since":    {noon, noon.Add(run + step), noon.Add(run), run, false},
		"the clock was set back before that": {noon.Add(-step), noon.Add(run - step), noon.Add(run), run, false},
		"it is not known when":               {time.Time{}, noon, noon, run, false},
	} {
		if got := isOlder(test.started, test.now, test.steady, test.madeAgo); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
