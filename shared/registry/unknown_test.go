package registry_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// leaderReads counts the reads of a bucket's leader that r's bus sees.
func leaderReads(t testing.TB, nc *nats.Conn, bucket string) func() int {
	t.Helper()
	sub := testenv.Subscribe(t, nc, bus.LeaderGet(streams.Bucket(bucket)))
	return func() int {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		n, _, err := sub.Pending()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func TestAnUnknownKeyIsAskedForOnceASecond(t *testing.T) {
	b := newBus(t)
	r := running(t, b)
	ask := map[string]func(){
		streams.BucketKeys: func() {
			if _, err := r.Keys.Check(t.Context(), "fl_nobody"); !errors.Is(err, registry.ErrUnauthorized) {
				t.Fatalf("got %v, want ErrUnauthorized", err)
			}
		},
		streams.BucketTokens: func() {
			if _, err := r.Tokens.Check(t.Context(), "fw_nobody", "ep", "w1"); !errors.Is(err, registry.ErrUnauthorized) {
				t.Fatalf("got %v, want ErrUnauthorized", err)
			}
		},
	}
	for bucket, check := range ask {
		reads := leaderReads(t, b.NC, bucket)
		const times = 200
		for range times {
			check()
		}
		if got := reads(); got == 0 || got > times/10 {
			t.Errorf("%s: got %d reads for %d times the same unknown key, want one a second", bucket, got, times)
		}
	}
}

// Memory that was not compared with the bucket for a while, as when the bus is slow,
// does not answer. All who ask then share a read: a read for each would keep the bus
// slow.
func TestThoseWhoAskAtTheSameTimeShareARead(t *testing.T) {
	b := newBus(t)
	r := open(t, b)
	stop := testenv.Background(t, r.Run)
	spec := endpoint.Endpoint{ID: "shared"}
	if _, err := r.Keys.Put(t.Context(), "fl_shared", all("")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Endpoints.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	stop()
	asks := map[string]func() error{
		streams.BucketKeys:      func() error { _, err := r.Keys.Check(t.Context(), "fl_shared"); return err },
		streams.BucketEndpoints: func() error { _, err := r.Endpoints.Get(t.Context(), "shared"); return err },
	}
	for bucket, ask := range asks {
		reads := leaderReads(t, b.NC, bucket)
		testenv.Eventually(t, "memory is not believed any more", func() bool {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			return reads() > 0
		})
		const times = 200
		before := reads()
		var asking errgroup.Group
		for range times {
			asking.Go(ask)
		}
		if err := asking.Wait(); err != nil {
			t.Error(err)
		}
		if got := reads() - before; got == 0 || got > times/4 {
			t.Errorf("%s: got %d reads for %d at the same time, want few", bucket, got, times)
		}
	}
}

// A key that was just refused works at once where it is made, and as soon as the
// watch brings it elsewhere.
func TestAKeyWorksThoughItWasUnknownAMomentAgo(t *testing.T) {
	b := newBus(t)
	maker, other := running(t, b), running(t, b)
	const plain = "chosen-by-me"
	for _, r := range []*registry.Registry{maker, other} {
		if _, err := r.Keys.Check(t.Context(), plain); !errors.Is(err, registry.ErrUnauthorized) {
			t.Fatalf("got %v before it is made, want ErrUnauthorized", err)
		}
	}
	if _, err := maker.Keys.Put(t.Context(), plain, all("")); err != nil {
		t.Fatal(err)
	}
	if _, err := maker.Keys.Check(t.Context(), plain); err != nil {
		t.Errorf("where it was made: %v", err)
	}
	testenv.Eventually(t, "it works elsewhere", func() bool { return other.Keys.Known(plain) })
	if _, err := other.Keys.Check(t.Context(), plain); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
}

func BenchmarkUnknownKey(b *testing.B) {
	bus := newBus(b)
	r := running(b, bus)
	for name, key := range map[string]func(n int) string{
		"the same": func(int) string { return "fl_nobody" },
		"others":   func(n int) string { return fmt.Sprintf("fl_%d", n) },
	} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				if _, err := r.Keys.Check(b.Context(), key(n)); !errors.Is(err, registry.ErrUnauthorized) {
					b.Fatal(err)
				}
			}
		})
	}
}
