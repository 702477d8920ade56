package streams_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
	"flightline/streams"
)

// The first values of a watch lack a key, now and then, that is written meanwhile: the
// server says that no message is pending between the removal of a key's last value and the
// next one, and nats.go believes it (ADR 0077). Once this fails, lists may be watches again.
func TestAWatchLacksAKeyThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketPositions)
	if err != nil {
		t.Fatal(err)
	}
	const n = 20
	testenv.KeepWriting(t, n, func(ctx context.Context, i int) error {
		_, err := kv.Put(ctx, fmt.Sprint(i), nil)
		return err
	})
	testenv.Eventually(t, "a watch lacks a key", func() bool {
		for range 50 {
			if firstValues(t, kv) < n {
				return true
			}
		}
		return false
	})
}

// firstValues is how many values a watch has before it says that it has all.
func firstValues(t *testing.T, kv jetstream.KeyValue) (n int) {
	t.Helper()
	watch, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }() // the test's server ends it in any case
	for value := range watch.Updates() {
		if value == nil {
			break
		}
		n++
	}
	return n
}
