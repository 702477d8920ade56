package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// On three nodes a claim is in flight for a while, and its leader may go: of
// those who claim the same exactly one is first all the same.
func TestOnThreeNodesOneOfManyClaimsIsFirst(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	const names, claimants = 30, 4
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: testenv.Nodes}); err != nil {
		t.Fatal(err)
	}
	var instances []*registry.Registry
	for range 2 {
		js, err := jetstream.New(c.Connect(t))
		if err != nil {
			t.Fatal(err)
		}
		r, err := registry.New(t.Context(), js, nil)
		if err != nil {
			t.Fatal(err)
		}
		instances = append(instances, r)
	}
	leader := c.StreamLeader(streams.Bucket(streams.BucketIdempotency))
	var all sync.WaitGroup
	var mu sync.Mutex
	jobs := map[string]map[job.ID]bool{}
	for n := range names {
		name := fmt.Sprintf("name%d", n)
		found := map[job.ID]bool{}
		jobs[name] = found
		for i := range claimants {
			all.Go(func() {
				mine := registry.Submission{Job: job.ID(fmt.Sprintf("job-%d", i)), Mode: job.Async, Body: "b"}
				got, err := claimed(t, instances[i%2], name, mine)
				mu.Lock()
				defer mu.Unlock()
				if found[got.Job] = true; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		if n == names/2 {
			c.StopNode(leader)
		}
	}
	all.Wait()
	for name, found := range jobs {
		if len(found) != 1 {
			t.Errorf("%s stands for %v, want one job", name, found)
		}
	}
}

// claimed does what a client does with a 503: it tries again.
func claimed(t *testing.T, r *registry.Registry, name string, s registry.Submission) (registry.Submission, error) {
	t.Helper()
	for {
		got, _, err := r.Idempotency.Claim(t.Context(), name, s)
		if !errors.Is(err, bus.ErrUnavailable) {
			return got, err
		}
	}
}
