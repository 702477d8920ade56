package registry_test

import (
	"bytes"
	"errors"
	"testing"

	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A session gives its key to its token alone, and to nobody once it is over.
func TestSessions(t *testing.T) {
	s := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), s.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	sessions, err := registry.OpenSessions(t.Context(), s.JS)
	if err != nil {
		t.Fatal(err)
	}
	const key = "fl_secret-of-somebody"
	token, err := sessions.Create(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sessions.Open(t.Context(), token); err != nil || got != key {
		t.Errorf("got %q, %v, want the key", got, err)
	}
	if _, err := sessions.Open(t.Context(), token+"A"); !errors.Is(err, registry.ErrUnauthorized) {
		t.Errorf("another token: got %v, want it refused", err)
	}
	kv, err := s.JS.KeyValue(t.Context(), streams.BucketSessions)
	if err != nil {
		t.Fatal(err)
	}
	names, err := kv.Keys(t.Context())
	if err != nil || len(names) != 1 || bytes.Contains([]byte(names[0]), []byte(token)) {
		t.Fatalf("got %v, %v, want one name without the token", names, err)
	}
	stored, err := kv.Get(t.Context(), names[0])
	if err != nil || bytes.Contains(stored.Value(), []byte(key)) || bytes.Contains(stored.Value(), []byte(token)) {
		t.Errorf("got %s, %v, want it sealed", stored.Value(), err)
	}
	if err := sessions.End(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Open(t.Context(), token); !errors.Is(err, registry.ErrUnauthorized) {
		t.Errorf("after its end: got %v, want it refused", err)
	}
}
