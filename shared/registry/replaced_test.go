package registry_test

import (
	"errors"
	"testing"

	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A bucket may go back while processes follow it: it was lost and made again, or NATS was
// restored from a backup. Its next writes have sequences that they have seen already.
func TestACacheFollowsABucketThatWentBack(t *testing.T) {
	b := newBus(t)
	writer, follower := open(t, b), running(t, b)
	var plain string
	var key registry.Key
	for range 5 {
		var err error
		if plain, key, err = writer.Keys.Create(t.Context(), all("")); err != nil {
			t.Fatal(err)
		}
	}
	check := func() error { _, err := follower.Keys.Check(t.Context(), plain); return err }
	testenv.Eventually(t, "the key is in memory", func() bool {
		reads := leaderReads(t, b.NC, streams.BucketKeys)
		return check() == nil && reads() == 0
	})
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := kv.Get(t.Context(), key.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), streams.Bucket(streams.BucketKeys)); err != nil {
		t.Fatal(err)
	}
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), key.ID, stored.Value()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the key lets in", func() bool { return check() == nil })
	if err := writer.Keys.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the key that was revoked lets nobody in", func() bool { return errors.Is(check(), registry.ErrUnauthorized) })
}
