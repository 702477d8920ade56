package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// An endpoint of the same id inherits neither pauses nor webhooks: its secret
// is another one.
func TestAnEndpointMadeAnewHasNothingOfTheWebhooksBefore(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.do("POST", "/endpoints", `{"id":"ep2"}`)
	e := s.endpoint("ep1")
	old := s.announced(e)
	other := s.endpoint("ep2")
	s.announced(other)
	s.keepAll(2, deliveries.ReasonPaused, "http://h.example:80")
	for _, id := range []string{"ep1", "ep2"} {
		s.do("POST", "/endpoints/"+id+"/webhooks/pause", `{"destination":"http://h.example"}`)
		d := deliveries.Attempt{Endpoint: id, Job: old, Attempt: 1, Try: 1, Outcome: deliveries.Failed, Started: time.Now()}
		if err := s.service.deliveries.Append(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.expect("delete", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	if left := s.bus.Messages(s.t, streams.Undelivered); left != 1 {
		t.Errorf("got %d kept, want the other endpoint's", left)
	}
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	for id, want := range map[string]int{"ep1": 0, "ep2": 1} {
		if got := s.do("GET", "/endpoints/"+id+"/webhooks/destinations", ""); strings.Count(got.raw, `"destination"`) != want {
			t.Errorf("%s: got destinations %s, want %d", id, got.raw, want)
		}
		if got := s.do("GET", "/endpoints/"+id+"/webhooks/deliveries", ""); strings.Count(got.raw, `"startedAt"`) != want {
			t.Errorf("%s: got deliveries %s, want %d", id, got.raw, want)
		}
	}
	if got := s.do("POST", "/endpoints/ep1/webhooks/resume", `{"destination":"http://h.example"}`); got.raw != `{"replayed":0}` {
		t.Errorf("got %s, want nothing to resume", got.raw)
	}
	s.expect("replay", s.do("POST", "/endpoints/ep1/webhooks/replay", `{"job":"`+string(old)+`"}`), 404, "job_not_found", "")
}

// What a crash left of a deletion is completed by the next one.
func TestADeletionThatWasInterruptedDropsTheWebhooksToo(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	s.announced(e)
	s.keepAll(1, deliveries.ReasonGivenUp, "http://h.example:80")
	if _, err := s.registry.Destinations.GaveUp(t.Context(), "ep1", "http://h.example:80", registry.FailurePolicy{}, "x", time.Now()); err != nil {
		t.Fatal(err)
	}
	marked, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), e)
	if err == nil {
		err = s.queue.DeleteEndpoint(t.Context(), marked) // and no further
	}
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, s.service.Run)
	testenv.Eventually(t, "the deletion is completed", func() bool {
		_, err := s.registry.Endpoints.Find(t.Context(), "ep1")
		return errors.Is(err, endpoint.ErrNotFound)
	})
	list, err := s.registry.Destinations.List(t.Context(), "ep1")
	if left := s.bus.Messages(s.t, streams.Undelivered); left != 0 || len(list) != 0 || err != nil {
		t.Errorf("got %d kept and destinations %v, %v, want none", left, list, err)
	}
}

// An endpoint's first job is never taken for one of an endpoint before it.
func TestAJobIsNotOlderThanItsEndpoint(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	for _, ahead := range []time.Duration{0, 3 * time.Second} { // the clock of its maker
		e.Created = e.Created.Add(ahead)
		j, err := s.queue.Submit(t.Context(), e, queue.NewID(job.Async), job.Async, job.Request{Input: []byte(`{}`)})
		if err != nil || record.LocationOf(e).OfEarlier(j) {
			t.Errorf("%s ahead: got %v, %v, want a job of %v", ahead, j.Submitted, err, e.Created)
		}
		read, err := s.queue.Status(t.Context(), e, j.ID)
		if err != nil || record.LocationOf(e).OfEarlier(read) {
			t.Errorf("%s ahead, as it is kept: got %v, %v, want a job of %v", ahead, read.Submitted, err, e.Created)
		}
	}
}

// Of two deletions at once in two processes the slower one goes on when the
// other is through, and an endpoint of the same id was made.
func TestALateDeletionLeavesTheEndpointMadeAnew(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	old := s.endpoint("ep1")
	marked, _, err := s.registry.Endpoints.MarkDeleting(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	s.expect("the other one", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	s.expect("made again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
	e := s.endpoint("ep1")
	s.announced(e)
	s.keepAll(1, deliveries.ReasonGivenUp, "http://h.example:80")
	id := s.submit(e)
	if err := s.service.destroy(t.Context(), marked); err != nil {
		t.Fatal(err)
	}
	if j, err := s.queue.Status(t.Context(), e, id); err != nil || j.Status != job.InQueue {
		t.Errorf("the new one's job: got %+v, %v, want IN_QUEUE", j, err)
	}
	if left := s.bus.Messages(s.t, streams.Undelivered); left != 1 {
		t.Errorf("got %d kept, want the new one's", left)
	}
	if now, err := s.registry.Endpoints.Find(t.Context(), "ep1"); err != nil || !now.Created.Equal(e.Created) || now.Deleting {
		t.Errorf("got %+v, %v, want the new endpoint", now, err)
	}
}

// A deletion whose mark somebody took back destroys nothing.
func TestADeletionThatWasTakenBackGoesNoFurther(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	if err := s.service.destroy(t.Context(), e); !errors.Is(err, endpoint.ErrBusy) {
		t.Errorf("got %v, want %v", err, endpoint.ErrBusy)
	}
	if _, err := s.queue.Counts.Stats(t.Context(), e); err != nil {
		t.Errorf("its queue: got %v", err)
	}
}

// What is made again at once has a secret that nobody mixes up with the one before.
func TestAnIDIsFreeWhenNobodyRemembersTheEndpointBefore(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.expect("delete", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	deleted, err := s.registry.Endpoints.Deleted(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	s.expect("made again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
	e, err := s.registry.Endpoints.Find(t.Context(), "ep1")
	if after := e.Created.Sub(deleted); err != nil || after < registry.MaxStaleness-100*time.Millisecond {
		t.Errorf("made %s after the deletion, %v, want %s at least", after, err, registry.MaxStaleness)
	}
}

func TestOneAtATimeAndOthersWait(t *testing.T) {
	var all keyedMutex
	unlock, err := all.Lock(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := all.Lock(t.Context(), "ep2"); err != nil {
		t.Errorf("another id: got %v, want no wait", err)
	} else {
		other()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Lock(ended, "ep1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	next := make(chan error)
	go func() {
		unlock, err := all.Lock(t.Context(), "ep1")
		if err == nil {
			unlock()
		}
		next <- err
	}()
	unlock()
	if err := <-next; err != nil {
		t.Error(err)
	}
}
