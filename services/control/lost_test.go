package control

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/testenv"
	"flightline/streams"
)

// A queue that was deleted by hand is made again, and marked: it lost its
// jobs. A queue that a crash left unmade is not.
func TestALostQueueIsMadeAgainAndMarked(t *testing.T) {
	s := start(t)
	for id, lose := range map[string]bool{"lost": true, "unmade": false} {
		if got := s.do("POST", "/endpoints", `{"id":"`+id+`"}`); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.raw)
		}
		e, err := s.registry.Endpoints.Find(t.Context(), id)
		if err != nil || !e.QueueMade || e.Version != 1 {
			t.Fatalf("got %+v, %v; want it marked as having a queue, and of version 1", e, err)
		}
		if err := s.bus.JS.DeleteStream(t.Context(), streams.Jobs(id)); err != nil {
			t.Fatal(err)
		}
		if lose {
			continue
		}
		if err := s.registry.Endpoints.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.QueueMade = false
		if _, err := s.registry.Endpoints.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.service.repair(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"lost": true, "unmade": false} {
		queue, err := s.bus.JS.Stream(t.Context(), streams.Jobs(id))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if got := !streams.Recovered(queue.CachedInfo().Config.Metadata).IsZero(); got != want {
			t.Errorf("%s: got marked as recovered %v, want %v", id, got, want)
		}
	}
	// The mark stays when the endpoint changes.
	if got := s.do("PATCH", "/endpoints/lost", `{"leaseMs":20000}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	queue, err := s.bus.JS.Stream(t.Context(), streams.Jobs("lost"))
	if err != nil || streams.Recovered(queue.CachedInfo().Config.Metadata).IsZero() {
		t.Errorf("got %+v, %v; want it marked still", queue.CachedInfo().Config.Metadata, err)
	}
}

// A look at each endpoint's queue is one request: with a thousand endpoints it is most of
// what an idle installation does.
func TestALookDoesNotMakeAQueueThatIsThere(t *testing.T) {
	s := start(t)
	if got := s.do("POST", "/endpoints", `{"id":"made"}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	asked := testenv.Subscribe(t, s.bus.NC, "$JS.API.*.*."+streams.Jobs("made")+".>")
	looked := testenv.Subscribe(t, s.bus.NC, "$JS.API.*.*."+streams.Jobs("made"))
	if err := s.service.repair(t.Context(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	for sub, want := range map[*nats.Subscription]int{asked: 0, looked: 1} {
		if got, _, err := sub.Pending(); err != nil || got != want {
			t.Errorf("%s: got %d requests, %v, want %d", sub.Subject, got, err, want)
		}
	}
}
