package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// What a crash between two steps leaves behind is finished by the next request.
func TestAKeyWhoseJobWasNeverQueuedQueuesIt(t *testing.T) {
	s := start(t)
	runs := s.worker()
	e, err := s.registry.Endpoints.Get(t.Context(), "ep")
	if err != nil {
		t.Fatal(err)
	}
	for name, crash := range map[string]func(id job.ID) error{
		"before the job was queued": func(job.ID) error { return nil },
		"after it was queued": func(id job.ID) error {
			_, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: json.RawMessage(`{"n":1}`)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			id, key := queue.NewID(job.Async), "crash-"+strings.ReplaceAll(name, " ", "-")
			sum := sumOf(someInput)
			claimed, first, err := s.registry.Idempotency.Claim(t.Context(), registry.IdempotencyKey(e, adminKey, key), registry.Submission{Job: id, Mode: job.Async, Body: sum})
			if err != nil || !first || claimed.Job != id {
				t.Fatalf("got %+v, %t, %v", claimed, first, err)
			}
			if err := crash(id); err != nil {
				t.Fatal(err)
			}
			restarted := s.twin()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if got := restarted.keyed("/ep/run", key, someInput); got.status != 200 || got.id() != string(id) {
						t.Errorf("got %d %s, want job %s", got.status, got.raw, id)
					}
				})
			}
			all.Wait()
			testenv.Eventually(t, "the job ran", func() bool { return runs()[id] > 0 })
			if got := runs()[id]; got != 1 {
				t.Errorf("got %d runs, want 1", got)
			}
		})
	}
}

func TestAReplayAfterTheRetentionTellsTheLastKnownStatus(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.shorten(time.Second)
	api := s.twin()
	runs := s.worker()
	for _, path := range []string{"/ep/run", "/ep/runsync"} {
		first := api.keyed(path, "k"+strings.ReplaceAll(path, "/", "-"), someInput)
		if first.status != 200 {
			t.Fatalf("%s: got %d %s", path, first.status, first.raw)
		}
		testenv.Eventually(t, "its retention is over", func() bool { return api.do("GET", "/ep/status/"+first.id(), "").status == 404 })
		s.forget(first.id())
		want := fmt.Sprintf(`{"id":%q,"status":"COMPLETED"}`, first.id())
		for range 2 {
			again := api.keyed(path, "k"+strings.ReplaceAll(path, "/", "-"), someInput)
			if again.status != 200 || again.raw != want || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: got %d %s, want %s, replayed", path, again.status, again.raw, want)
			}
		}
		if got := runs()[job.ID(first.id())]; got != 1 {
			t.Errorf("%s: got %d runs, want 1", path, got)
		}
	}
}

// Without a recorder nobody logs the end of a job, and a crash may leave the key
// unmarked: then the record decides.
func TestAReplayAfterTheRetentionWithoutARecorderTellsTheLastKnownStatus(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.shorten(time.Second)
	api := s.twin()
	runs := s.worker()
	e, err := s.registry.Endpoints.Get(t.Context(), "ep")
	if err != nil {
		t.Fatal(err)
	}
	id := queue.NewID(job.Async)
	if _, _, err := s.registry.Idempotency.Claim(t.Context(), registry.IdempotencyKey(e, adminKey, "k"), registry.Submission{Job: id, Mode: job.Async, Body: sumOf(someInput)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.Submit(t.Context(), e, id, job.Async, job.Request{Input: json.RawMessage(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the job ran", func() bool { return runs()[id] > 0 })
	testenv.Eventually(t, "its retention is over", func() bool { return api.do("GET", "/ep/status/"+string(id), "").status == 404 })
	want := fmt.Sprintf(`{"id":%q,"status":"COMPLETED"}`, id)
	for range 2 {
		again := api.keyed("/ep/run", "k", someInput)
		if again.status != 200 || again.raw != want || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %d %s, want %s, replayed", again.status, again.raw, want)
		}
	}
}

// A job that expired in the queue left no trace but the mark at its key.
func TestAJobThatExpiredUnseenIsNotQueuedAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	api := s.twin()
	first := api.keyed("/ep/run", "k", someInput)
	if got := api.do("GET", "/ep/status/"+first.id()+"?ttl=1000", ""); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.raw)
	}
	testenv.Eventually(t, "it expires", func() bool { return api.do("GET", "/ep/status/"+first.id(), "").status == 404 })
	if again := api.keyed("/ep/run", "k", someInput); again.raw != first.raw {
		t.Errorf("got %d %s, want %s", again.status, again.raw, first.raw)
	}
	if got := api.do("GET", "/ep/status/"+first.id(), ""); got.status != 404 {
		t.Errorf("got %d %s, want it not queued again", got.status, got.raw)
	}
}

func TestARequestRefusedInAnOutageIsRepeatedAsOneJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	api := s.twin()
	s.bus.Stop()
	if got := api.keyed("/ep/run", "k", someInput); got.status != http.StatusServiceUnavailable {
		t.Fatalf("without JetStream: got %d %s", got.status, got.raw)
	}
	s.bus.Start()
	runs := s.worker()
	var ids []string
	testenv.Eventually(t, "three requests got through", func() bool {
		if got := api.keyed("/ep/run", "k", someInput); got.status == 200 {
			ids = append(ids, got.id())
		}
		return len(ids) == 3
	})
	testenv.Eventually(t, "the job ran", func() bool { return runs()[job.ID(ids[0])] > 0 })
	if got := runs(); len(got) != 1 || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("got jobs %v and runs %v, want one", ids, got)
	}
}

// A key whose job was never queued is tried until there is room for it. What one request
// has searched of the event log is not searched again by the next.
func TestAKeyThatIsTriedAgainIsNotSearchedForAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	e, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.MaxQueueJobs = 1
		return e, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var before []string
	testenv.Eventually(t, "the queue is full", func() bool {
		got := s.do("POST", "/ep/run", someInput)
		if got.status == 200 {
			before = append(before, got.id())
		}
		return got.status == 429
	})
	name, mine := registry.IdempotencyKey(e, adminKey, "k"), registry.Submission{Job: queue.NewID(job.Async), Mode: job.Async, Body: sumOf(someInput)}
	if _, _, err := s.registry.Idempotency.Claim(t.Context(), name, mine); err != nil {
		t.Fatal(err)
	}
	for n := range searchStep + 2 {
		if err := s.service.events.Append(t.Context(), lifeOf("other-"+strconv.Itoa(n))...); err != nil {
			t.Fatal(err)
		}
	}
	got := s.keyed("/ep/run", "k", someInput)
	if got.status != 429 {
		t.Fatalf("got %d %s, want no room", got.status, got.raw)
	}
	if claim, _, err := s.registry.Idempotency.Claim(t.Context(), name, mine); err != nil || claim.Searched <= searchStep || claim.Accepted {
		t.Errorf("got %+v, %v, want the log searched", claim, err)
	}
	for _, id := range before {
		s.do("POST", "/ep/cancel/"+id, "")
	}
	testenv.Eventually(t, "there is room", func() bool { got = s.keyed("/ep/run", "k", someInput); return got.status == 200 })
	if claim, _, err := s.registry.Idempotency.Claim(t.Context(), name, mine); err != nil || !claim.Accepted || got.id() != string(mine.Job) {
		t.Errorf("got %+v, %v and %s, want the claimed job accepted", claim, err, got.raw)
	}
}

func sumOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// Requests that are repeated until they get through, while JetStream comes and
// goes, are one job for each key, and each runs once.
func TestKeysOutliveOutages(t *testing.T) {
	t.Parallel()
	s := start(t)
	instances := []*env{s.twin(), s.twin()}
	runs := s.worker()
	const keys = 24
	ids := make([]string, keys)
	var clients sync.WaitGroup
	for k := range keys {
		clients.Go(func() {
			deadline := time.Now().Add(patience)
			for try := 0; time.Now().Before(deadline); try++ {
				got := instances[(k+try)%2].keyed("/ep/run", fmt.Sprintf("key-%d", k), someInput)
				switch {
				case got.status == http.StatusOK && ids[k] != "" && ids[k] != got.id():
					t.Errorf("key %d: got jobs %s and %s", k, ids[k], got.id())
					return
				case got.status == http.StatusOK && ids[k] != "":
					return // twice is enough
				case got.status == http.StatusOK:
					ids[k] = got.id()
				case got.status != http.StatusServiceUnavailable:
					t.Errorf("key %d: got %d %s", k, got.status, got.raw)
				}
			}
			t.Errorf("key %d never got through twice", k)
		})
	}
	for range 4 {
		<-time.After(30 * time.Millisecond)
		s.bus.Stop()
		<-time.After(100 * time.Millisecond)
		s.bus.Start()
	}
	clients.Wait()
	testenv.Eventually(t, "all jobs ran", func() bool { return len(runs()) == keys })
	for _, id := range ids {
		if n := runs()[job.ID(id)]; n != 1 {
			t.Errorf("job %s: got %d runs, want 1", id, n)
		}
	}
}
