package control

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// refuseConsumer makes NATS refuse the second consumer of the endpoint's queue, as it
// does at the limit of an account.
func (s *env) refuseConsumer(id string) {
	s.t.Helper()
	if _, err := s.bus.JS.CreateStream(s.t.Context(), streams.JobsConfig(streams.Config{}, id)); err != nil {
		s.t.Fatal(err)
	}
	taken := streams.ConsumerConfig(endpoint.Endpoint{ID: id, Lease: endpoint.DefaultLease}, job.LowPriority)
	taken.Durable = "taken"
	if _, err := s.bus.JS.CreateConsumer(s.t.Context(), streams.Jobs(id), taken); err != nil {
		s.t.Fatal(err)
	}
}

// forget loses the record of an endpoint, as damage to the files of its bucket does.
func (s *env) forget(id string) {
	s.t.Helper()
	bucket, err := s.bus.JS.Stream(s.t.Context(), streams.Bucket(streams.BucketEndpoints))
	if err == nil {
		err = bucket.Purge(s.t.Context(), jetstream.WithPurgeSubject(streams.KeySubject(streams.BucketEndpoints, id)))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Jobs with the inputs of one owner must not run on the workers of another.
func TestAnIDWhoseQueueHasJobsIsNotTakenAgain(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	old := s.endpoint("ep1")
	id := s.submit(old)
	s.expect("it exists", s.do("POST", "/endpoints", `{"id":"ep1"}`), 409, "endpoint_exists", "")
	s.forget("ep1")
	s.expect("with jobs", s.do("POST", "/endpoints", `{"id":"ep1"}`), 409, "endpoint_busy", "queue JOBS_ep1 has jobs of an earlier endpoint")
	s.expect("a deletion without force", s.do("DELETE", "/endpoints/ep1", ""), 404, "endpoint_not_found", "")
	for _, none := range []string{"ep2", "ep.1"} {
		s.expect("of no queue: "+none, s.do("DELETE", "/endpoints/"+none+"?force=true", ""), 404, "endpoint_not_found", "")
	}
	s.expect("the way out", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	if j, err := s.queue.Status(t.Context(), old, id); err != nil || j.Status != job.Cancelled {
		t.Errorf("its job: got %+v, %v, want CANCELLED", j, err)
	}
	s.expect("without jobs", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
	if n := s.bus.Messages(t, streams.Jobs("ep1")); n != 0 {
		t.Errorf("got %d jobs, want none", n)
	}
}

func TestACreationThatIsRefusedLeavesNothing(t *testing.T) {
	s := start(t)
	s.refuseConsumer("ep1")
	s.expect("create", s.do("POST", "/endpoints", `{"id":"ep1"}`), 503, "unavailable", "")
	if _, err := s.registry.Endpoints.Find(t.Context(), "ep1"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("its record: got %v, want %v", err, endpoint.ErrNotFound)
	}
	if _, err := s.bus.JS.Stream(t.Context(), streams.Jobs("ep1")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("its queue: got %v, want %v", err, jetstream.ErrStreamNotFound)
	}
	s.expect("create again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
}

// Instances know an endpoint before its queue has all consumers, and queue jobs.
func TestACreationThatIsRefusedKeepsAnAcceptedJob(t *testing.T) {
	s := start(t)
	s.refuseConsumer("ep1")
	made, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep1", Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	id := s.submit(made)
	if err := s.service.withdraw(t.Context(), made, false); !errors.Is(err, endpoint.ErrBusy) {
		t.Errorf("got %v, want %v", err, endpoint.ErrBusy)
	}
	if j, err := s.queue.Status(t.Context(), s.endpoint("ep1"), id); err != nil || j.Status != job.InQueue {
		t.Errorf("the job: got %+v, %v, want IN_QUEUE", j, err)
	}
	s.expect("delete", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
}

func TestAnEndpointThatIsRefusedDoesNotKeepOthersFromRepair(t *testing.T) {
	s := start(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		e, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: id, Created: time.Now()})
		if err == nil && (id == "c" || id == "d") {
			_, _, err = s.registry.Endpoints.MarkDeleting(t.Context(), e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.refuseConsumer("a")
	s.refuseConsumer("c") // a deletion needs no consumers
	testenv.Background(t, s.service.Run)
	testenv.Eventually(t, "the other queue is made", func() bool {
		_, err := s.queue.Counts.Stats(t.Context(), endpoint.Endpoint{ID: "b"})
		return err == nil
	})
	testenv.Eventually(t, "the deletions are completed", func() bool {
		left, err := s.registry.Endpoints.Deleting(t.Context())
		return err == nil && len(left) == 0
	})
}
