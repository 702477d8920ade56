package registry_test

import (
	"errors"
	"strings"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/streams"
)

// What workers read of an endpoint follows it, holds no secret, and is made true
// again where a crash or an older program left it behind.
func TestWorkersReadEndpointsWithoutSecrets(t *testing.T) {
	b := newBus(t)
	r := open(t, b)
	worker, err := registry.NewForWorker(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	const canary = "canary"
	made, err := r.Endpoints.Create(t.Context(), endpoint.Endpoint{
		ID: "ep", WebhookSecret: canary, WebhookSecretBefore: canary, Env: map[string]string{"TOKEN": canary},
	})
	if err != nil {
		t.Fatal(err)
	}
	workersRead := func(version int) {
		t.Helper()
		got, err := worker.Endpoints.Get(t.Context(), "ep")
		if err != nil || got.Version != version || got.Lease != made.Lease || got.MaxLost != made.MaxLost || !got.Created.Equal(made.Created) {
			t.Errorf("got %+v, %v, want version %d", got, err, version)
		}
	}
	workersRead(1)
	if _, err := r.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) { return e, nil }); err != nil {
		t.Fatal(err)
	}
	workersRead(2)

	kv, err := b.JS.KeyValue(t.Context(), streams.BucketWorkerEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kv.Get(t.Context(), "ep")
	if err != nil || strings.Contains(string(raw.Value()), canary) {
		t.Errorf("got %s, %v, want no secret in it", raw.Value(), err)
	}
	if err := kv.Purge(t.Context(), "ep"); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "gone", `{"id":"gone","source":1}`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Endpoints.RepairWorkerCopies(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	workersRead(2)
	if keys, err := kv.Keys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("got %v, %v, want ep alone", keys, err)
	}

	marked, _, err := r.Endpoints.MarkDeleting(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Endpoints.Get(t.Context(), "ep"); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("got %v, want endpoint.ErrNotFound", err)
	}
	if err := r.Endpoints.Delete(t.Context(), marked); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(t.Context(), "ep"); err == nil {
		t.Error("got a deleted endpoint, want none")
	}
}
