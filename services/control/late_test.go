package control

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// A change, or the creation, of an endpoint reads its record and applies it to the queue.
// A deletion in between must not be followed by a queue of no endpoint.
func TestAQueueIsNotMadeOnceItsEndpointIsDeleted(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	old := s.endpoint("ep1")
	s.expect("delete", s.do("DELETE", "/endpoints/ep1?force=true", ""), 204, "", "")
	if err := s.service.applyQueue(t.Context(), old); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("got %v, want that the endpoint is not found", err)
	}
	if exists, err := s.queue.QueueExists(t.Context(), old); err != nil || exists {
		t.Errorf("got %v, %v, want no queue", exists, err)
	}
	s.expect("made again", s.do("POST", "/endpoints", `{"id":"ep1"}`), 200, "", "")
	if err := s.service.applyQueue(t.Context(), old); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("of the earlier one of the id: got %v, want that it is not found", err)
	}
}

// Of two changes at once the earlier may be applied last.
func TestTheQueueHasTheLeaseOfTheRecord(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	old := s.endpoint("ep1")
	s.expect("change", s.do("PATCH", "/endpoints/ep1", `{"leaseMs":60000}`), 200, "", "")
	if err := s.service.applyQueue(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for _, class := range job.Classes() {
		c, err := s.bus.JS.Consumer(t.Context(), streams.Jobs("ep1"), streams.Consumer(class))
		if err != nil || c.CachedInfo().Config.AckWait != time.Minute {
			t.Errorf("%v: got %+v, %v, want the lease of the record", class, c, err)
		}
	}
}

// A template or a volume is deleted, or something comes to name it: not both.
func TestWhatIsNamedIsNotDeletedMeanwhile(t *testing.T) {
	s := start(t)
	for path, of := range map[string]struct{ body, user, named string }{
		"/templates":      {`{"name":"t","imageName":"i","isServerless":true}`, "/endpoints", `{"name":"ep","templateId":%q}`},
		"/networkvolumes": {`{"name":"v","size":1}`, "/pods", `{"name":"p","imageName":"i","networkVolumeId":%q}`},
	} {
		for i := range 20 {
			id, _ := s.do("POST", path, of.body).body["id"].(string)
			var status [4]int
			var asked sync.WaitGroup
			for k := range status {
				asked.Go(func() {
					if k == 0 {
						status[k] = s.do("DELETE", path+"/"+id, "").status
						return
					}
					status[k] = s.do("POST", of.user, fmt.Sprintf(of.named, id)).status
				})
			}
			asked.Wait()
			if status[0] == 204 && slices.ContainsFunc(status[1:], func(n int) bool { return n < 300 }) {
				t.Fatalf("%s, round %d: got the answers %v, want that it is gone or in use", path, i, status)
			}
		}
	}
}
