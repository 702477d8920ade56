package autoscaler

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// The leader renews what belongs to a worker that runs: it stays for longer than the
// TTL, and is not started again.
func TestAWorkerThatRunsOutlivesTheTTLOfItsRecord(t *testing.T) {
	const ttl = 15 * time.Second
	s := newSiteOf(t, ttl)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	s.autoscaler(e)
	const id = "ep-0-1"
	made := s.status(id, pod.Running)
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", id, registry.WorkerIdle) })
	testenv.EventuallyNone(s.t, func() string {
		if now := s.queue.Now(); now.Sub(made.Created) < ttl+time.Second {
			return fmt.Sprintf("its record was made at %s, it is %s", made.Created, now)
		}
		return ""
	})
	if p := s.status(id, pod.Running); !p.Created.Equal(made.Created) || e.starts(id) != 1 {
		t.Errorf("got %+v, started %d times, want it as it was", p, e.starts(id))
	}
	if _, err := s.registry.Tokens.Find(t.Context(), "ep", id); err != nil {
		t.Errorf("its token: %v", err)
	}
}

// The records of an installation that was stopped for long are gone: it starts its
// fleets again, and ends what ran on.
func TestAFleetStartsAgainAfterItsRecordsExpired(t *testing.T) {
	const ttl, id = time.Second, "ep-0-1"
	s := newSiteOf(t, ttl)
	e := s.engine("machine")
	s.endpoint("ep", bounds(1, 1))
	old := pod.Pod{ID: id, Endpoint: "ep", Driver: pod.Process, MachineID: "machine", Status: pod.Running, Created: s.queue.Now()}
	if err := s.registry.Pods.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	plain, _, err := s.registry.Tokens.IssueForFleet(t.Context(), "ep", id)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), driver.Start{PodID: id, Endpoint: "ep"}); err != nil { // as a container that goes on
		t.Fatal(err)
	}
	e.mu.Lock()
	before := e.running[id]
	before.began = time.Now().Add(-2 * clockSkew)
	e.mu.Unlock()
	s.Stop()
	<-time.After(ttl) // nobody is there to ask
	s.Start()
	gone := func() string {
		if _, err := s.registry.Pods.Get(t.Context(), id); !errors.Is(err, pod.ErrNotFound) {
			return fmt.Sprintf("the pod: got %v, want that it is gone", err)
		}
		return ""
	}
	testenv.EventuallyNone(s.t, gone)
	s.podTTL = 0 // the new record must not expire while it is waited for
	s.registry, s.queue = s.peer()
	testenv.EventuallyNone(s.t, gone) // for this registry the old one counts until the server removes it
	s.registry, s.queue = s.peer()    // and this one never saw it: no watch reports the removal
	s.autoscaler(e)
	// The leader may make a record of the old id while its agent drains the old worker, and
	// take that for the new one's drain: then a worker of another id is started.
	testenv.EventuallyNone(s.t, func() string {
		pods, err := s.registry.Pods.List(t.Context())
		if !slices.ContainsFunc(pods, func(p pod.Pod) bool { return p.Status == pod.Running && !p.Started.IsZero() }) {
			return fmt.Sprintf("got %+v, %v, want one started", pods, err)
		}
		return ""
	})
	testenv.EventuallyNone(s.t, func() string {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, err := s.registry.Tokens.Check(t.Context(), plain, "ep", id); e.running[id] == before || !errors.Is(err, registry.ErrUnauthorized) {
			return fmt.Sprintf("the old worker runs: %t, its token: got %v, want that both are ended", e.running[id] == before, err)
		}
		return ""
	})
}
