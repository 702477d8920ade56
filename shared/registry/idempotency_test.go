package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
)

func TestOneOfManyClaimsIsFirst(t *testing.T) {
	b := newBus(t)
	instances := []*registry.Registry{open(t, b), open(t, b)}
	var mu sync.Mutex
	var all sync.WaitGroup
	firsts, jobs := 0, map[job.ID]int{}
	for i := range 64 {
		all.Go(func() {
			mine := registry.Submission{Job: job.ID(fmt.Sprintf("job-%d", i)), Mode: job.Async, Body: "b"}
			got, first, err := instances[i%2].Idempotency.Claim(t.Context(), "name", mine)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || first != (got.Job == mine.Job) {
				t.Errorf("got %+v, %t, %v", got, first, err)
			}
			if first {
				firsts++
			}
			jobs[got.Job]++
		})
	}
	all.Wait()
	if firsts != 1 || len(jobs) != 1 {
		t.Errorf("got %d first ones and jobs %v, want one of each", firsts, jobs)
	}
}

func TestAClaimRemembersThatItWasAccepted(t *testing.T) {
	b := newBus(t)
	i := open(t, b).Idempotency
	mine, first, err := i.Claim(t.Context(), "name", registry.Submission{Job: "j", Mode: job.Sync, Body: "b"})
	if err != nil || !first || mine.Accepted {
		t.Fatalf("got %+v, %t, %v", mine, first, err)
	}
	found, first, err := i.Claim(t.Context(), "name", registry.Submission{Job: "k", Mode: job.Sync, Body: "b"})
	if err != nil || first || found.Job != "j" || found.Accepted {
		t.Fatalf("got %+v, %t, %v", found, first, err)
	}
	for _, s := range []registry.Submission{mine, mine, found} { // again, and by somebody else
		if err := i.Accept(t.Context(), "name", s); err != nil {
			t.Fatal(err)
		}
	}
	if found, _, err = i.Claim(t.Context(), "name", found); err != nil || !found.Accepted || found.Job != "j" {
		t.Errorf("got %+v, %v, want it accepted", found, err)
	}
	for name, same := range map[string]bool{"b": true, "c": false} {
		if found.Same(job.Sync, name) != same || found.Same(job.Async, name) {
			t.Errorf("body %s: got %t, want %t for the same operation only", name, !same, same)
		}
	}
}

func TestClaimsInAnOutageFail(t *testing.T) {
	b := newBus(t)
	i := open(t, b).Idempotency
	b.Stop()
	if _, _, err := i.Claim(t.Context(), "name", registry.Submission{Job: "j"}); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("got %v, want bus.ErrUnavailable", err)
	}
}

func TestIdempotencyKeysOfOthersAreOthers(t *testing.T) {
	now := time.Now()
	e := endpoint.Endpoint{ID: "ep", Created: now}
	want := registry.IdempotencyKey(e, "caller", "key")
	if again := registry.IdempotencyKey(endpoint.Endpoint{ID: "ep", Created: now.UTC(), Version: 7}, "caller", "key"); again != want {
		t.Errorf("got %s, want %s again", again, want)
	}
	for name, other := range map[string]string{
		"endpoint":            registry.IdempotencyKey(endpoint.Endpoint{ID: "ep2", Created: now}, "caller", "key"),
		"endpoint made again": registry.IdempotencyKey(endpoint.Endpoint{ID: "ep", Created: now.Add(time.Second)}, "caller", "key"),
		"caller":              registry.IdempotencyKey(e, "caller2", "key"),
		"key":                 registry.IdempotencyKey(e, "caller", "key2"),
		"border":              registry.IdempotencyKey(e, "callerk", "ey"),
	} {
		if other == want {
			t.Errorf("another %s: got the same name", name)
		}
	}
}
