package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

// told returns the endpoint that the next arrival is about, "" if none comes.
func told(a *EnqueueNotifier, within time.Duration) string {
	select {
	case m := <-a.Notifications():
		return a.Read(m)
	case <-time.After(within):
		return ""
	}
}

func TestOneArrivalIsToldAndNoneOfThoseThatFollow(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	a := s.queue(t, Config{}).EnqueueNotifier()
	defer a.Close()
	for _, class := range []bool{false, true} {
		for range 2 { // the second does nothing
			if err := a.Await("ep", true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.q.Counts.StatsNow(t.Context(), s.e); err != nil { // the server has heard of it by now
			t.Fatal(err)
		}
		if !a.Awaits("ep", true) {
			t.Error("awaited: got false, want true")
		}
		for range 3 {
			s.submit(t, func(r *job.Request) { r.Policy.LowPriority = class })
		}
		if got := told(a, soon); got != "ep" {
			t.Fatalf("low priority %v: got %q, want ep", class, got)
		}
		if a.Awaits("ep", true) {
			t.Error("awaited once it was told: got true, want false")
		}
		if got := told(a, 200*time.Millisecond); got != "" {
			t.Errorf("low priority %v: got %q once more, want nothing", class, got)
		}
	}
	if err := a.Await("no/id", true); err == nil {
		t.Error("an id that cannot be: got nil, want an error")
	}
}

func TestLowPriorityIsToldOnlyIfItIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	a := s.queue(t, Config{}).EnqueueNotifier()
	defer a.Close()
	if err := a.Await("ep", false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.q.Counts.StatsNow(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	if got := told(a, 200*time.Millisecond); got != "" || !a.Awaits("ep", false) || a.Awaits("ep", true) {
		t.Errorf("a low-priority job: got %q, awaited %v, all %v; want nothing, true, false", got, a.Awaits("ep", false), a.Awaits("ep", true))
	}
	s.submit(t)
	if got := told(a, soon); got != "ep" {
		t.Errorf("got %q, want ep", got)
	}
}

func TestAnEndpointThatIsForgottenIsNotToldOf(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	a := s.queue(t, Config{}).EnqueueNotifier()
	defer a.Close()
	if err := a.Await("ep", true); err != nil {
		t.Fatal(err)
	}
	a.Forget("ep")
	if _, err := a.q.Counts.StatsNow(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.submit(t)
	if got := told(a, 200*time.Millisecond); got != "" || a.Awaits("ep", true) {
		t.Errorf("got %q, awaited %v; want nothing, false", got, a.Awaits("ep", true))
	}
}

// What came while the server was away was not told, so nobody may rely on it.
func TestNothingIsAwaitedAcrossAnOutage(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	a := s.q.EnqueueNotifier()
	defer a.Close()
	if err := a.Await("ep", true); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Start()
	for end := time.Now().Add(soon); !s.q.nc.IsConnected() || s.q.nc.Stats().Reconnects == 0; {
		if time.Now().After(end) {
			t.Fatal("not connected again")
		}
		<-time.After(10 * time.Millisecond)
	}
	if a.Awaits("ep", true) {
		t.Error("after an outage: got true, want false")
	}
	if err := a.Await("ep", true); err != nil || !a.Awaits("ep", true) {
		t.Fatalf("awaited anew: got %v, %v; want nil, true", err, a.Awaits("ep", true))
	}
	for end := time.Now().Add(soon); ; {
		if _, err := s.q.Counts.StatsNow(t.Context(), s.e); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	s.submit(t)
	if got := told(a, soon); got != "ep" {
		t.Errorf("got %q, want ep", got)
	}
}

// StatsNow counts the last job; Stats may give an answer that is up to statsAge old.
func TestStatsNowKnowsOfTheLastJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const tries = 20 // a busy machine may take longer than statsAge for a submission
	for want := range tries {
		var asked time.Time
		// The server may count a message a moment after it acknowledged it.
		testenv.Eventually(t, fmt.Sprint(want, " are counted"), func() bool {
			asked = time.Now()
			got, err := s.q.Counts.StatsNow(t.Context(), s.e)
			return err == nil && got.Queued == want
		})
		s.submit(t)
		got, err := s.q.Counts.Stats(t.Context(), s.e)
		if err != nil {
			t.Fatal(err)
		}
		switch fresh := time.Since(asked) < statsAge; {
		case fresh && got.Queued != want:
			t.Fatalf("of a moment ago: got %+v, want %d", got, want)
		case fresh && want >= 4:
			return
		}
	}
	t.Errorf("in none of %d tries a job was submitted within %v", tries, statsAge)
}

func TestAQueueIsEmptyOnceItsLastJobHasEnded(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	want := func(what string, empty bool) {
		t.Helper()
		if got, err := s.q.Counts.IsEmpty(t.Context(), s.e); err != nil || got != empty {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, empty)
		}
	}
	want("a new queue", true)
	s.submit(t, func(r *job.Request) { r.Policy.LowPriority = true })
	want("a job waits", false)
	l := next(t, s.consumer(t, s.q, "w"))
	want("it was handed out", false)
	if _, err := l.Complete(t.Context(), []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it has ended", func() bool { empty, err := s.q.Counts.IsEmpty(t.Context(), s.e); return err == nil && empty })
}

func TestManyThatAwaitAnEndpointAtOnceLeaveOneSubscription(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	q := s.queue(t, Config{})
	a := q.EnqueueNotifier()
	before := q.nc.NumSubscriptions()
	for range 500 {
		a.Forget("ep")
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				if err := a.Await("ep", true); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
	}
	if got := q.nc.NumSubscriptions() - before; got != 1 {
		t.Errorf("awaited: got %d subscriptions, want 1", got)
	}
	a.Close()
	if got := q.nc.NumSubscriptions() - before; got != 0 {
		t.Errorf("closed: got %d subscriptions, want 0", got)
	}
}
