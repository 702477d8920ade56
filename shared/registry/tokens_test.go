package registry_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
)

func TestATokenLetsOneWorkerIn(t *testing.T) {
	b := anotherBus(t)
	for name, r := range map[string]*registry.Registry{"from the bucket": open(t, b), "from memory": running(t, b)} {
		t.Run(name, func(t *testing.T) {
			plain, made, err := r.Tokens.Issue(t.Context(), "ep", "w1")
			if err != nil || !regexp.MustCompile(`^fw_[A-Za-z0-9_-]{40}$`).MatchString(plain) || made.Last4 != plain[len(plain)-4:] {
				t.Fatalf("got %d characters, %v", len(plain), err)
			}
			other, _, err := r.Tokens.Issue(t.Context(), "ep", "w2")
			if err != nil {
				t.Fatal(err)
			}
			for what, tc := range map[string]struct {
				plain, endpoint, worker string
				good                    bool
			}{
				"itself":               {plain, "ep", "w1", true},
				"another worker":       {plain, "ep", "w2", false},
				"another endpoint":     {plain, "ep2", "w1", false},
				"another token":        {other, "ep", "w1", false},
				"no token":             {"", "ep", "w1", false},
				"not a token":          {"fl_x", "ep", "w1", false},
				"an id that cannot be": {plain, "ep", "w.1", false},
			} {
				_, err := r.Tokens.Check(t.Context(), tc.plain, tc.endpoint, tc.worker)
				if (err == nil) != tc.good || err != nil && !errors.Is(err, registry.ErrUnauthorized) {
					t.Errorf("%s: got %v, want good: %v", what, err, tc.good)
				}
			}
		})
	}
}

func TestANewTokenReplacesTheOld(t *testing.T) {
	r := open(t, newBus(t))
	old, _, err := r.Tokens.Issue(t.Context(), "ep", "w1")
	if err != nil {
		t.Fatal(err)
	}
	drained, err := r.Tokens.Drain(t.Context(), "ep", "w1")
	if err != nil || !drained.Draining {
		t.Fatalf("got %+v, %v, want it draining", drained, err)
	}
	at := time.UnixMilli(1_800_000_000_000)
	if err := r.Tokens.Refresh(t.Context(), "ep", "w1", at); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Tokens.Check(t.Context(), old, "ep", "w1"); err != nil || !got.Draining || !got.Refreshed.Equal(at) {
		t.Errorf("got %+v, %v, want it draining and refreshed", got, err)
	}
	plain, made, err := r.Tokens.Issue(t.Context(), "ep", "w1")
	if err != nil || made.Draining || !made.Refreshed.IsZero() {
		t.Errorf("got %+v, %v, want a fresh one", made, err)
	}
	if _, err := r.Tokens.Check(t.Context(), old, "ep", "w1"); !errors.Is(err, registry.ErrUnauthorized) {
		t.Errorf("the old one: got %v, want ErrUnauthorized", err)
	}
	if _, err := r.Tokens.Check(t.Context(), plain, "ep", "w1"); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

func TestATokenOfAFleetIsTakenBack(t *testing.T) {
	r := open(t, newBus(t))
	issue := func() (string, func(context.Context) error) {
		plain, undo, err := r.Tokens.IssueForFleet(t.Context(), "ep", "w1")
		if err != nil {
			t.Fatal(err)
		}
		return plain, undo
	}
	first, undoFirst := issue()
	second, undoSecond := issue()
	if _, err := r.Tokens.Drain(t.Context(), "ep", "w1"); err != nil {
		t.Fatal(err)
	}
	for what, undo := range map[string]func(context.Context) error{"the first": undoFirst, "the last": undoSecond, "again": undoSecond} {
		if err := undo(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := r.Tokens.Check(t.Context(), first, "ep", "w1"); err != nil || !got.Draining || !got.Expires {
		t.Errorf("got %+v, %v, want the first one, draining", got, err)
	}
	if _, err := r.Tokens.Check(t.Context(), second, "ep", "w1"); !errors.Is(err, registry.ErrUnauthorized) {
		t.Errorf("the second one: got %v, want ErrUnauthorized", err)
	}
	if err := r.Tokens.Revoke(t.Context(), "ep", "w1"); err != nil {
		t.Fatal(err)
	}
	if err := undoSecond(t.Context()); err != nil {
		t.Errorf("of a worker without one: %v", err)
	}
}

func TestTokensAreListedRevokedAndDropped(t *testing.T) {
	r := open(t, newBus(t))
	for _, worker := range []string{"w2", "w1", "w3"} {
		if _, _, err := r.Tokens.Issue(t.Context(), "ep", worker); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Tokens.Issue(t.Context(), "ep2", "w9"); err != nil {
		t.Fatal(err)
	}
	if err := r.Tokens.Revoke(t.Context(), "ep", "w3"); err != nil {
		t.Fatal(err)
	}
	if err := r.Tokens.Revoke(t.Context(), "ep", "w3"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("again: got %v, want ErrNotFound", err)
	}
	list, err := r.Tokens.List(t.Context(), "ep")
	if err != nil || len(list) != 2 || list[0].Worker != "w1" || list[1].Worker != "w2" {
		t.Errorf("got %+v, %v, want w1 and w2", list, err)
	}
	if err := r.Tokens.Drop(t.Context(), "ep"); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Tokens.List(t.Context(), "ep"); err != nil || len(list) != 0 {
		t.Errorf("got %+v, %v, want none", list, err)
	}
	if list, err := r.Tokens.List(t.Context(), "ep2"); err != nil || len(list) != 1 {
		t.Errorf("another endpoint: got %+v, %v, want its own", list, err)
	}
}

func TestTokensOfIDsThatCannotBe(t *testing.T) {
	r := open(t, newBus(t))
	for _, worker := range []string{"", "a.b", "a b", "*", "ä"} {
		if _, _, err := r.Tokens.Issue(t.Context(), "ep", worker); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", worker, err)
		}
		if _, err := r.Tokens.Drain(t.Context(), "ep", worker); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%q: got %v, want ErrNotFound", worker, err)
		}
	}
	if _, err := r.Tokens.List(t.Context(), "*"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("got %v, want endpoint.ErrNotFound", err)
	}
}

func TestOnlyTheNoteThatWasSeenIsRemoved(t *testing.T) {
	r := open(t, newBus(t))
	_, made, err := r.Tokens.Issue(t.Context(), "ep", "w1")
	if err != nil {
		t.Fatal(err)
	}
	first := time.Now().UTC().Truncate(time.Millisecond)
	later := first.Add(time.Minute)
	for i, step := range []struct {
		do   func() error
		want time.Time
	}{
		{func() error { return r.Tokens.Disconnect(t.Context(), "ep", "w1", "of another token", first) }, time.Time{}},
		{func() error { return r.Tokens.Disconnect(t.Context(), "ep", "w1", made.Hash, first) }, first},
		{func() error { return r.Tokens.Disconnect(t.Context(), "ep", "w1", made.Hash, first.Add(time.Second/2)) }, first},
		{func() error { return r.Tokens.Disconnect(t.Context(), "ep", "w1", made.Hash, later) }, later},
		{func() error { return r.Tokens.Reconnect(t.Context(), "ep", "w1", first) }, later},
		{func() error { return r.Tokens.Reconnect(t.Context(), "ep", "w1", later) }, time.Time{}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got, err := r.Tokens.Find(t.Context(), "ep", "w1"); err != nil || !got.Disconnected.Equal(step.want) {
			t.Errorf("step %d: got %s, %v, want %s", i, got.Disconnected, err, step.want)
		}
	}
}
