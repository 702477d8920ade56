package barrier_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/barrier"
	"flightline/shared/testenv"
)

const prefix = "durable."

// serve serves the barrier until the test ends or the returned function is
// called, and returns once it is found.
func serve(t *testing.T, b *testenv.Server, sync barrier.Func) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	nc := b.Connect(t)
	done := make(chan error, 1)
	go func() { done <- barrier.Serve(ctx, nc, prefix, sync) }()
	var once atomic.Bool
	end = func() {
		cancel()
		if !once.CompareAndSwap(false, true) {
			return
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if nc.IsConnected() { // else it waits for the server
			_ = nc.Flush() // no request reaches it any more
		}
	}
	t.Cleanup(end)
	testenv.Eventually(t, "it has subscribed", func() bool { return nc.NumSubscriptions() > 0 })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return end
}

// Who knew a barrier once goes on asking, also when the server fsyncs by itself by now.
func TestABarrierThatIsNotNeededLetsThrough(t *testing.T) {
	b := testenv.NewServer(t)
	r := barrier.NewRemote(b.NC, prefix)
	end := serve(t, b, func(context.Context, string) error { return errBroken })
	if err := r.Sync(t.Context(), "S"); err == nil {
		t.Error("while it is needed: got nil, want an error")
	}
	end()
	serve(t, b, nil)
	if err := r.Sync(t.Context(), "S"); err != nil {
		t.Errorf("not needed: got %v, want nil", err)
	}
}

func TestSyncGoesThroughNATSAndErrorsComeBack(t *testing.T) {
	b := testenv.NewServer(t)
	r := barrier.NewRemote(b.NC, prefix)
	if err := r.Sync(t.Context(), "S"); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody serves: got %v, want ErrNoResponders", err)
	}
	serve(t, b, func(_ context.Context, stream string) error {
		if stream == "BAD" {
			return errBroken
		}
		return nil
	})
	if err := r.Sync(t.Context(), "GOOD"); err != nil {
		t.Errorf("GOOD: got %v, want nil", err)
	}
	if err := r.Sync(t.Context(), "BAD"); err == nil || !strings.Contains(err.Error(), errBroken.Error()) {
		t.Errorf("BAD: got %v, want broken", err)
	}
}

func TestWritersOfAProcessShareRequests(t *testing.T) {
	const writers, each = 64, 20
	b := testenv.NewServer(t)
	var requests atomic.Int32
	serve(t, b, func(context.Context, string) error {
		requests.Add(1)
		<-time.After(time.Millisecond) // a disk takes its time
		return nil
	})
	r := barrier.NewRemote(b.NC, prefix)
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for range each {
				if err := r.Sync(t.Context(), "S"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, most := requests.Load(), int32(writers*each/8); got > most {
		t.Errorf("got %d requests for %d waits, want at most %d", got, writers*each, most)
	}
}

func TestStreamsDoNotWaitForEachOther(t *testing.T) {
	b := testenv.NewServer(t)
	goOn := make(chan struct{})
	serve(t, b, func(ctx context.Context, stream string) error {
		if stream == "SLOW" {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		return nil
	})
	r := barrier.NewRemote(b.NC, prefix)
	slow := make(chan error, 1)
	go func() { slow <- r.Sync(t.Context(), "SLOW") }()
	if err := r.Sync(t.Context(), "FAST"); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

func TestAWaitEndsWhenTheServerGoes(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	began := make(chan struct{}, 100)
	serve(t, b, func(ctx context.Context, _ string) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	r := barrier.NewRemote(b.NC, prefix)
	results := make(chan error, 10)
	start := time.Now()
	for range cap(results) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
			defer cancel()
			results <- r.Sync(ctx, "S")
		}()
	}
	<-began
	b.Stop()
	for range cap(results) {
		if err := <-results; err == nil {
			t.Error("got nil, want an error")
		}
	}
	if got := time.Since(start); got > 5*time.Second {
		t.Errorf("got an answer after %v, want it within 5 s", got)
	}
}

func TestSyncIsBoundByItsContext(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	serve(t, b, func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
	r := barrier.NewRemote(b.NC, prefix)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Sync(ctx, "S"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
	if err := r.Sync(t.Context(), "S"); err == nil {
		t.Error("no answer in time: got nil, want an error")
	}
}
