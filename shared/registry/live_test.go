package registry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestWorkersAreCountedByState(t *testing.T) {
	b := newBus(t)
	beater := open(t, b)
	for _, w := range []registry.Worker{
		{ID: "a", Endpoint: "ep1", State: registry.WorkerIdle},
		{ID: "b", Endpoint: "ep1", State: registry.WorkerRunning, Running: []string{"j1"}, Host: registry.Host{CPUs: 2}},
		{ID: "c", Endpoint: "ep1", State: registry.WorkerRunning, Running: []string{"j1", "j2"}}, // j1 was taken over
		{ID: "d", Endpoint: "ep10", State: registry.WorkerIdle},
	} {
		if err := beater.Workers.Beat(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*registry.Registry{"cold": beater, "warm": running(t, b)} {
		want := registry.WorkerCounts{States: map[string]int{registry.WorkerIdle: 1, registry.WorkerRunning: 2}, Jobs: 2}
		testenv.Eventually(t, name+" counts ep1", func() bool {
			got, err := r.Workers.Counts(t.Context(), "ep1")
			return err == nil && cmp.Equal(got, want)
		})
		if all, err := r.Workers.List(t.Context(), ""); err != nil || len(all) != 4 || all[1].Seen.IsZero() || all[1].Host.CPUs != 2 {
			t.Errorf("%s: got %+v, %v", name, all, err)
		}
		if got, err := r.Workers.Counts(t.Context(), "ep2"); err != nil || len(got.States) != 0 || got.Jobs != 0 {
			t.Errorf("%s: got %v, %v, want none", name, got, err)
		}
	}
	if err := beater.Workers.Remove(t.Context(), "ep1", "a"); err != nil {
		t.Fatal(err)
	}
	if list, err := beater.Workers.List(t.Context(), "ep1"); err != nil || len(list) != 2 {
		t.Errorf("after remove: got %+v, %v", list, err)
	}
}

func TestWorkerIDsThatCannotBe(t *testing.T) {
	r := open(t, newBus(t))
	for _, w := range []registry.Worker{{}, {ID: "a"}, {ID: "a.b", Endpoint: "ep1"}, {ID: "a", Endpoint: "*"}, {ID: ">", Endpoint: "ep1"}} {
		if err := r.Workers.Beat(t.Context(), w); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", w, err)
		}
	}
}

func TestWaitSeenWaitsForEveryInstance(t *testing.T) {
	b := newBus(t)
	control, api := running(t, b), running(t, b)
	e := create(t, control, "ep1")
	inBackground(t, func(ctx context.Context) error {
		return api.Instances.Announce(ctx, registry.Instance{ID: "api-1", Role: "api"})
	})
	asks := open(t, b) // a console: it does not follow the endpoints
	inBackground(t, func(ctx context.Context) error {
		return asks.Instances.Announce(ctx, registry.Instance{ID: "console-1", Role: "console", Endpoints: registry.NoEndpoints})
	})
	testenv.Eventually(t, "the instances are there", func() bool {
		list, err := control.Instances.List(t.Context())
		return err == nil && len(list) == 2
	})
	var revision uint64
	testenv.Promptly(t, 2*time.Second, "the wait, far less than a heartbeat", func(n int) time.Duration {
		if n > 0 {
			e = create(t, control, fmt.Sprint("again", n))
		}
		var err error
		if _, revision, err = control.Endpoints.MarkDeleting(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := control.Instances.WaitSeen(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	})
	list, err := control.Instances.List(t.Context())
	if err != nil || len(list) != 2 || min(list[0].Endpoints, list[1].Endpoints) < revision {
		t.Errorf("got %+v, %v, want revision %d seen", list, err, revision)
	}
}

func TestWaitSeenDoesNotWaitForeverForOneThatLags(t *testing.T) {
	b := newBus(t)
	control := open(t, b)
	e := create(t, control, "ep1")
	stuck := open(t, b) // it does not run, so it never sees anything
	inBackground(t, func(ctx context.Context) error {
		return stuck.Instances.Announce(ctx, registry.Instance{ID: "stuck", Role: "api"})
	})
	testenv.Eventually(t, "the instance is there", func() bool {
		list, err := control.Instances.List(t.Context())
		return err == nil && len(list) == 1
	})
	_, revision, err := control.Endpoints.MarkDeleting(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := control.Instances.WaitSeen(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 4*time.Second || took > 8*time.Second {
		t.Errorf("took %s, want about 5 s", took)
	}
}

func TestAnInstanceThatLeavesIsGoneAtOnce(t *testing.T) {
	r := running(t, newBus(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Instances.Announce(ctx, registry.Instance{ID: "api-1"}) }()
	testenv.Eventually(t, "it is there", func() bool { l, err := r.Instances.List(t.Context()); return err == nil && len(l) == 1 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if l, err := r.Instances.List(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("got %+v, %v, want none", l, err)
	}
}
