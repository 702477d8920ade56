package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func openActions(t *testing.T) (*registry.Actions, *testenv.Server) {
	t.Helper()
	s := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	actions, err := registry.OpenActions(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	return actions, s
}

// An action is that of its key alone, and of one who works on it.
func TestActions(t *testing.T) {
	t.Parallel()
	actions, s := openActions(t)
	const key = "fl_secret-of-somebody"
	a, err := actions.Begin(t.Context(), key, "ep", "cancel", []job.ID{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ key, id string }{{"another", a.ID}, {key, "*"}, {key, ">"}, {key, ""}, {key, strings.Repeat("A", 26)}} {
		if _, err := actions.Find(t.Context(), tc.key, tc.id); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s by the key %s: got %v, want it not found", tc.id, tc.key, err)
		}
	}
	other, err := actions.Find(t.Context(), key, a.ID)
	if err != nil || other.Total != 2 || other.Interrupted(time.Now()) || !other.Interrupted(time.Now().Add(registry.ActionSilence+time.Second)) {
		t.Fatalf("got %+v, %v, want it to go on for now", other, err)
	}
	if a.Settled = 1; actions.Save(t.Context(), a) != nil {
		t.Error("it cannot be saved")
	}
	if err := actions.Continue(t.Context(), other); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("continued after it went on: got %v, want a conflict", err)
	}
	if other, err = actions.Find(t.Context(), key, a.ID); err != nil || actions.Continue(t.Context(), other) != nil {
		t.Fatalf("continue: %v", err)
	}
	if err := actions.Save(t.Context(), a); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("saved by the one before: got %v, want a conflict", err)
	}
	kv, err := s.JS.KeyValue(t.Context(), streams.BucketActions)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := kv.Get(t.Context(), "state."+a.ID)
	if err != nil || strings.Contains(string(stored.Value()), key) {
		t.Errorf("got %s, %v, want the key not in it", stored.Value(), err)
	}
}

// A save that was stored although its answer was lost is no conflict for the next one.
func TestASaveWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	actions, _ := openActions(t)
	a, err := actions.Begin(t.Context(), "key", "ep", "cancel", []job.ID{"one"})
	if err != nil {
		t.Fatal(err)
	}
	before := *a
	if a.Settled = 1; actions.Save(t.Context(), a) != nil {
		t.Fatal("it cannot be saved")
	}
	before.Settled = 1
	if err := actions.Save(t.Context(), &before); err != nil {
		t.Errorf("got %v, want it saved", err)
	}
}

// The jobs of an action that lists them are those that a runner stored first.
func TestAnActionThatListsItsJobs(t *testing.T) {
	t.Parallel()
	actions, _ := openActions(t)
	for _, filter := range []string{"", strings.Repeat("x", 5000)} {
		if _, err := actions.BeginListing(t.Context(), "key", "ep", "cancel", filter); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("a filter of %d bytes: got %v, want it refused", len(filter), err)
		}
	}
	a, err := actions.BeginListing(t.Context(), "key", "ep", "cancel", "status=IN_QUEUE")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := actions.SetJobs(t.Context(), a, []job.ID{"a b"}); !errors.Is(err, registry.ErrInvalid) || a.Filter == "" {
		t.Errorf("an invalid id: got %v, %+v", err, a)
	}
	other, err := actions.Find(t.Context(), "key", a.ID)
	if err != nil || actions.Continue(t.Context(), other) != nil {
		t.Fatalf("continue: %v", err)
	}
	if _, err := actions.SetJobs(t.Context(), a, []job.ID{"one", "two"}); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("the runner before: got %v, want a conflict", err)
	}
	ids, err := actions.SetJobs(t.Context(), other, []job.ID{"two"})
	if err != nil || !slices.Equal(ids, []job.ID{"one", "two"}) || other.Total != 2 {
		t.Errorf("got %v, %v, want those that were stored before", ids, err)
	}
	if got, err := actions.Find(t.Context(), "key", a.ID); err != nil || got.Filter != "" || got.Total != 2 {
		t.Errorf("got %+v, %v, want it listed", got, err)
	}
}

func TestBoundsOfActions(t *testing.T) {
	t.Parallel()
	actions, _ := openActions(t)
	long := make([]job.ID, registry.MaxActionJobs)
	for i := range long {
		long[i] = job.ID(fmt.Sprintf("%0128d", i))
	}
	for name, ids := range map[string][]job.ID{"none": {}, "one that cannot be": {"a b"}, "too many": make([]job.ID, registry.MaxActionJobs+1), "too long in all": long} {
		if _, err := actions.Begin(t.Context(), "key", "ep", "cancel", ids); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	const most, own = 100, 10
	var all []*registry.Action
	for i := range most {
		key := "key"
		if i >= own {
			key = fmt.Sprint("another", i/own)
		}
		a, err := actions.Begin(t.Context(), key, "ep", "cancel", []job.ID{"one"})
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, a); i == own {
			if _, err := actions.Begin(t.Context(), "key", "ep", "cancel", []job.ID{"one"}); !errors.Is(err, registry.ErrTooMany) {
				t.Errorf("while as many of the key go on: got %v, want it refused", err)
			}
		}
	}
	var saves errgroup.Group // on a slow machine the first ones are silent for long by now
	for _, a := range all {
		saves.Go(func() error { return actions.Save(t.Context(), a) })
	}
	if err := saves.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := actions.Begin(t.Context(), "a new one", "ep", "cancel", []job.ID{"one"}); !errors.Is(err, registry.ErrTooMany) {
		t.Errorf("while as many go on: got %v, want it refused", err)
	}
	for _, a := range []*registry.Action{all[7], all[5], all[3*own]} {
		if a.Ended = time.Now(); actions.Save(t.Context(), a) != nil {
			t.Fatal("it cannot be saved")
		}
	}
	if _, err := actions.Begin(t.Context(), "key", "ep", "cancel", []job.ID{"one"}); err != nil {
		t.Errorf("when one is over: got %v", err)
	}
	if _, err := actions.Find(t.Context(), "key", all[5].ID); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the oldest that is over: got %v, want it gone", err)
	}
	if _, err := actions.Find(t.Context(), "key", all[7].ID); err != nil {
		t.Errorf("the other one: got %v, want it there", err)
	}
	if _, err := actions.Begin(t.Context(), "another3", "ep", "cancel", []job.ID{"one"}); err != nil {
		t.Errorf("when one of the key's own is over: got %v", err)
	}
	if _, err := actions.Find(t.Context(), "key", all[7].ID); err != nil {
		t.Errorf("that of another key, which is older: got %v, want it there", err)
	}
}

// A console may have another time than NATS: that an action is interrupted is by the clock of NATS alone.
func TestAnActionIsInterruptedByTheServersClock(t *testing.T) {
	t.Parallel()
	_, s := openActions(t)
	clock := testenv.NewSteppedClock(t, s.Config())
	js, err := jetstream.New(testenv.Connect(t, clock.Config))
	if err != nil {
		t.Fatal(err)
	}
	actions, err := registry.OpenActions(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	const key = "fl_secret-of-somebody"
	a, err := actions.Begin(t.Context(), key, "ep", "cancel", []job.ID{"one"})
	if err != nil {
		t.Fatal(err)
	}
	clock.Set(2 * registry.ActionSilence)
	if got, err := actions.Find(t.Context(), key, a.ID); err != nil || !got.Interrupted(time.Now()) {
		t.Errorf("got %+v, %v, want it interrupted: the server's clock went on", got, err)
	}
}
