package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

// newBus is a bus with all buckets. It lets other tests run meanwhile: most of what a
// test takes is waiting.
func newBus(t testing.TB) *testenv.Server {
	t.Helper()
	if parallel, ok := t.(*testing.T); ok {
		parallel.Parallel()
	}
	return anotherBus(t)
}

// anotherBus is one more, or that of a test that lets no other run meanwhile.
func anotherBus(t testing.TB) *testenv.Server {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// open returns a registry without Run: it reads the bucket each time.
func open(t testing.TB, b *testenv.Server) *registry.Registry {
	t.Helper()
	r, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// running returns a registry whose caches follow the buckets.
func running(t testing.TB, b *testenv.Server) *registry.Registry {
	t.Helper()
	r := open(t, b)
	inBackground(t, r.Run)
	return r
}

// inBackground runs f until the test ends, and waits for its return.
func inBackground(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func TestEndpointIsCreatedOnce(t *testing.T) {
	r := running(t, newBus(t))
	made, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep1", Created: time.Unix(100, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	if made.Version != 1 || made.Lease != endpoint.DefaultLease || made.Name != "ep1" {
		t.Errorf("got %+v, want version 1 and the defaults", made)
	}
	got, err := r.Endpoints.Get(t.Context(), "ep1")
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		t.Errorf("get: %v, diff %s", err, diff)
	}
	if _, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep1"}); !errors.Is(err, endpoint.ErrExists) {
		t.Errorf("second create: got %v, want ErrExists", err)
	}
	if _, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "no good"}); !errors.Is(err, endpoint.ErrInvalid) {
		t.Errorf("bad id: got %v, want ErrInvalid", err)
	}
}

func TestUnknownEndpointIsNotFound(t *testing.T) {
	b := newBus(t)
	for name, r := range map[string]*registry.Registry{"cold": open(t, b), "warm": running(t, b)} {
		for _, id := range []string{"nobody", "", "a.b", "*", ">", "env"} {
			if _, err := r.Endpoints.Get(t.Context(), id); !errors.Is(err, endpoint.ErrNotFound) {
				t.Errorf("%s, %q: got %v, want ErrNotFound", name, id, err)
			}
		}
	}
}

func TestUpdateRaisesTheVersionAndKeepsTheIdentity(t *testing.T) {
	r := running(t, newBus(t))
	made := create(t, r, "ep1")
	got, err := r.Endpoints.Update(t.Context(), "ep1", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
		e.ID, e.Partition, e.Created, e.Name = "other", 7, time.Now(), "new name"
		return e, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := made
	want.Name, want.Version = "new name", 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := r.Endpoints.Get(t.Context(), "ep1")
	if err != nil || again.Version != 2 {
		t.Errorf("read your own write: got %+v, %v", again, err)
	}
	boom := errors.New("boom")
	if _, err := r.Endpoints.Update(t.Context(), "ep1", func(e endpoint.Endpoint) (endpoint.Endpoint, error) { return e, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want the error of change", err)
	}
	if _, err := r.Endpoints.Update(t.Context(), "nobody", func(e endpoint.Endpoint) (endpoint.Endpoint, error) { return e, nil }); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestConcurrentUpdatesAllCount(t *testing.T) {
	b := newBus(t)
	create(t, open(t, b), "ep1")
	var wg sync.WaitGroup
	const writers = 4
	for range writers {
		r := open(t, b)
		wg.Go(func() {
			_, err := r.Endpoints.Update(t.Context(), "ep1", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
				e.WorkersMax++
				return e, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := open(t, b).Endpoints.Get(t.Context(), "ep1")
	if err != nil || got.WorkersMax != endpoint.DefaultWorkersMax+writers || got.Version != 1+writers {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnEndpointThatIsDeletedIsSoonRefusedByOthers(t *testing.T) {
	b := newBus(t)
	r, other := running(t, b), running(t, b)
	testenv.Promptly(t, time.Second, "the other refuses an endpoint", func(n int) time.Duration {
		e := create(t, r, fmt.Sprint("gone", n))
		testenv.Eventually(t, "the other instance knows it", func() bool {
			_, err := other.Endpoints.Get(t.Context(), e.ID)
			return err == nil
		})
		if _, _, err := r.Endpoints.MarkDeleting(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		testenv.Eventually(t, "the other refuses it", func() bool {
			_, err := other.Endpoints.Get(t.Context(), e.ID)
			return errors.Is(err, endpoint.ErrNotFound)
		})
		return time.Since(began)
	})
}

func TestDeletingEndpointRefusesEverywhereAndItsIDIsTakenUntilTheEnd(t *testing.T) {
	b := newBus(t)
	r, other := running(t, b), running(t, b)
	e := create(t, r, "ep1")
	create(t, r, "ep2")
	testenv.Eventually(t, "the other instance knows it", func() bool {
		_, err := other.Endpoints.Get(t.Context(), "ep1")
		return err == nil
	})
	_, revision, err := r.Endpoints.MarkDeleting(t.Context(), e)
	if err != nil || revision == 0 {
		t.Fatalf("got revision %d, %v", revision, err)
	}
	if _, again, err := other.Endpoints.MarkDeleting(t.Context(), e); err != nil || again != revision {
		t.Errorf("marked again: got revision %d, %v, want %d", again, err, revision)
	}
	if _, err := r.Endpoints.Get(t.Context(), "ep1"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("here: got %v, want ErrNotFound", err)
	}
	testenv.Eventually(t, "the other refuses it", func() bool {
		_, err := other.Endpoints.Get(t.Context(), "ep1")
		return errors.Is(err, endpoint.ErrNotFound)
	})
	if _, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep1"}); !errors.Is(err, endpoint.ErrExists) {
		t.Errorf("create meanwhile: got %v, want ErrExists", err)
	}
	list, err := r.Endpoints.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "ep2" {
		t.Errorf("list: got %+v, %v, want ep2", list, err)
	}
	for name, x := range map[string]*registry.Registry{"here": r, "the other": other, "one without Run": open(t, b)} {
		testenv.Eventually(t, name+" knows ep2 alone", func() bool {
			known, err := x.Endpoints.Known(t.Context())
			return err == nil && len(known) == 1 && known[0].ID == "ep2"
		})
	}
	if d, err := r.Endpoints.Deleting(t.Context()); err != nil || len(d) != 1 || d[0].ID != "ep1" {
		t.Errorf("deleting: got %+v, %v, want ep1", d, err)
	}
	for range 2 {
		if err := r.Endpoints.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := r.Endpoints.Deleted(t.Context(), "ep1"); err != nil || time.Since(at) > patience {
		t.Errorf("got a deletion at %s, %v, want one just now", at, err)
	}
	if made := create(t, r, "ep1"); made.Version != 1 {
		t.Errorf("made again: got version %d, want 1", made.Version)
	}
}

// A deletion may be late: an endpoint of the same id was made again.
func TestAnEndpointMadeAnewIsNotDeletedWithTheOneBefore(t *testing.T) {
	b := newBus(t)
	r := open(t, b)
	old := endpoint.Endpoint{ID: "ep1", Created: time.Now().Add(-time.Minute)}
	young, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep1", Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Endpoints.MarkDeleting(t.Context(), old); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("mark: got %v, want %v", err, endpoint.ErrNotFound)
	}
	if err := r.Endpoints.Unmark(t.Context(), old); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("unmark: got %v, want %v", err, endpoint.ErrNotFound)
	}
	if err := r.Endpoints.Delete(t.Context(), old); err != nil {
		t.Errorf("delete: got %v, want nothing to do", err)
	}
	if got, err := r.Endpoints.Find(t.Context(), "ep1"); err != nil || !got.Created.Equal(young.Created) || got.Deleting || got.Version != 1 {
		t.Errorf("got %+v, %v, want the new one untouched", got, err)
	}
	if at, err := r.Endpoints.Deleted(t.Context(), "ep1"); err != nil || !at.IsZero() {
		t.Errorf("got a deletion at %s, %v, want none", at, err)
	}
}

func TestWithoutTheBusCallsAreUnavailableWithin5s(t *testing.T) {
	b := newBus(t)
	r := running(t, b)
	create(t, r, "ep1")
	b.Stop()
	calls := map[string]func() error{
		"create": func() error {
			_, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "ep2"})
			return err
		},
		"list":       func() error { _, err := r.Endpoints.List(t.Context()); return err },
		"miss":       func() error { _, err := r.Endpoints.Get(t.Context(), "ep2"); return err },
		"check":      func() error { _, err := r.Keys.Check(t.Context(), "unknown-key"); return err },
		"create key": func() error { _, _, err := r.Keys.Create(t.Context(), all("k")); return err },
		"beat":       func() error { return r.Workers.Beat(t.Context(), registry.Worker{ID: "w", Endpoint: "ep1"}) },
	}
	for name, call := range calls {
		began := time.Now()
		err := call()
		if took := time.Since(began); !errors.Is(err, bus.ErrUnavailable) || took > patience/4 {
			t.Errorf("%s: got %v after %s, want bus.ErrUnavailable in seconds", name, err, took)
		}
	}
	testenv.Eventually(t, "the cache stops vouching", func() bool {
		_, err := r.Endpoints.Get(t.Context(), "ep1")
		return errors.Is(err, bus.ErrUnavailable)
	})
	b.Start()
	testenv.Eventually(t, "it comes back", func() bool {
		_, err := r.Endpoints.Get(t.Context(), "ep1")
		return err == nil
	})
}

func create(t *testing.T, r *registry.Registry, id string) endpoint.Endpoint {
	t.Helper()
	e, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
