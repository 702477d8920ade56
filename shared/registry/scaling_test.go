package registry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/streams"
)

func TestADecisionHoldsUntilTheNext(t *testing.T) {
	s := open(t, newBus(t)).Scaling
	if _, err := s.Last(t.Context(), "echo"); !errors.Is(err, registry.ErrNotFound) {
		t.Fatalf("last of none: got %v, want ErrNotFound", err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var want []registry.Decision
	for i := range 5 {
		d := registry.Decision{
			Endpoint: "echo", At: at.Add(time.Duration(i) * time.Second), Wanted: i, Queued: 7,
			Reason: registry.ScalingDelay, Text: fmt.Sprint("number ", i), OldestWait: time.Second,
		}
		want = append([]registry.Decision{d}, want...)
		for _, d := range []registry.Decision{d, {Endpoint: "other", Wanted: 9}} {
			if err := s.Append(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := s.History(t.Context(), "echo", 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[:3], got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	last, err := s.Last(t.Context(), "echo")
	if err != nil || last.Wanted != 4 {
		t.Errorf("last: got %d, %v, want 4", last.Wanted, err)
	}
	if err := s.Drop(t.Context(), "echo"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.History(t.Context(), "echo", 10); err != nil || len(got) != 0 {
		t.Errorf("history after Drop: got %v, %v, want none", got, err)
	}
	if last, err = s.Last(t.Context(), "other"); err != nil || last.Wanted != 9 {
		t.Errorf("the other's last: got %d, %v, want 9", last.Wanted, err)
	}
}

func TestADecisionNeedsAnEndpoint(t *testing.T) {
	s := open(t, newBus(t)).Scaling
	if err := s.Append(t.Context(), registry.Decision{Endpoint: "a.b"}); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("append: got %v, want ErrInvalid", err)
	}
	if _, err := s.History(t.Context(), "a.b", 1); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("history: got %v, want endpoint.ErrNotFound", err)
	}
	if _, err := s.Last(t.Context(), "*"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("last: got %v, want endpoint.ErrNotFound", err)
	}
	if err := s.Drop(t.Context(), "*"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("drop: got %v, want endpoint.ErrNotFound", err)
	}
}

func TestAnAutoscalerIsAliveWhileItLeads(t *testing.T) {
	b := newBus(t)
	s := open(t, b).Scaling
	if alive, err := s.Alive(t.Context()); alive || err != nil {
		t.Fatalf("alive: got %v, %v, want false", alive, err)
	}
	leaders, err := registry.OpenTable[registry.Leader](t.Context(), b.JS, streams.BucketLeaders)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaders.Create(t.Context(), registry.RoleAutoscaler, registry.Leader{Instance: "a"}); err != nil {
		t.Fatal(err)
	}
	if alive, err := s.Alive(t.Context()); !alive || err != nil {
		t.Errorf("alive: got %v, %v, want true", alive, err)
	}
}

// An autoscaler that begins to lead reads it for each endpoint there is.
func TestTheLastDecisionTakesOneRequest(t *testing.T) {
	b := newBus(t)
	s := open(t, b).Scaling
	for i := range 3 {
		if err := s.Append(t.Context(), registry.Decision{Endpoint: "echo", Wanted: i}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]error{"echo": nil, "none": registry.ErrNotFound} {
		before := b.NC.Stats().OutMsgs
		if _, err := s.Last(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", id, err, want)
		}
		if sent := b.NC.Stats().OutMsgs - before; sent != 1 {
			t.Errorf("%s: got %d requests, want one", id, sent)
		}
	}
}
