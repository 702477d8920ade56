package registry_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// leadersFor makes the bucket forget a leader after ttl.
func leadersFor(t *testing.T, b *testenv.Server, ttl time.Duration) {
	t.Helper()
	stream, err := b.JS.Stream(t.Context(), streams.Bucket(streams.BucketLeaders))
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxAge = ttl
	if cfg.Duplicates > ttl {
		cfg.Duplicates = ttl
	}
	if _, err := b.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// candidate runs for the role "r" on a connection of its own.
type candidate struct {
	nc      *nats.Conn
	active  atomic.Bool
	terms   atomic.Int64
	stop    context.CancelFunc
	stopped chan error
}

func stand(t *testing.T, b *testenv.Server, id string) *candidate {
	t.Helper()
	c := &candidate{nc: b.Connect(t), stopped: make(chan error, 1)}
	js, err := jetstream.New(c.nc)
	if err != nil {
		t.Fatal(err)
	}
	e, err := registry.NewElection(t.Context(), js, "r", id, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		c.stopped <- e.Run(ctx, func(ctx context.Context) error {
			c.terms.Add(1)
			c.active.Store(true)
			<-ctx.Done()
			c.active.Store(false)
			return ctx.Err()
		})
	}()
	t.Cleanup(func() { c.end(t) })
	return c
}

func (c *candidate) end(t *testing.T) {
	t.Helper()
	if c.stopped == nil {
		return
	}
	c.stop()
	if err := <-c.stopped; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	c.stopped = nil
}

func TestOneIsActiveAndAStandbyTakesOverAtOnceAfterAnOrderlyStop(t *testing.T) {
	b := newBus(t)
	leadersFor(t, b, 10*patience) // so that only the stop ends the first one's term
	first := stand(t, b, "first")
	testenv.Eventually(t, "the first is active", first.active.Load)
	second := stand(t, b, "second")
	first.end(t)
	testenv.Eventually(t, "the second is active", second.active.Load)
	if n := second.terms.Load(); n != 1 {
		t.Errorf("got %d terms of the second, want 1: it was active beside the first", n)
	}
}

func TestAStandbyTakesOverFromOneThatDied(t *testing.T) {
	b := newBus(t)
	leadersFor(t, b, time.Second)
	first := stand(t, b, "first")
	testenv.Eventually(t, "the first is active", first.active.Load)
	second := stand(t, b, "second")
	first.nc.Close() // as a crash does
	testenv.Eventually(t, "the first has given up", func() bool { return !first.active.Load() })
	testenv.Eventually(t, "the second is active", second.active.Load)
}

func TestTheActiveOneStaysSoWhileItRenews(t *testing.T) {
	b := newBus(t)
	leadersFor(t, b, 500*time.Millisecond)
	first := stand(t, b, "first")
	testenv.Eventually(t, "the first is active", first.active.Load)
	second := stand(t, b, "second")
	time.AfterFunc(2*time.Second, second.stop)
	if err := <-second.stopped; err != nil {
		t.Error(err)
	}
	second.stopped = nil
	if first.terms.Load() != 1 || second.terms.Load() != 0 {
		t.Errorf("got %d and %d terms, want 1 and 0", first.terms.Load(), second.terms.Load())
	}
}

// Two that were suspended must not both go on: who lost the role gives up.
func TestTheOneWhoseRoleWasTakenGivesUp(t *testing.T) {
	b := newBus(t)
	leadersFor(t, b, time.Second)
	first := stand(t, b, "first")
	testenv.Eventually(t, "the first is active", first.active.Load)
	table, err := registry.OpenTable[registry.Leader](t.Context(), b.JS, streams.BucketLeaders)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for first.active.Load() && ctx.Err() == nil {
		if err := table.Put(ctx, "r", registry.Leader{Instance: "usurper"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if first.active.Load() {
		t.Error("the first is active though another has the role")
	}
	testenv.Eventually(t, "the first is active again", first.active.Load)
}

func TestAnOutageEndsATermAndTheNextOneBegins(t *testing.T) {
	b := newBus(t)
	leadersFor(t, b, time.Second)
	first := stand(t, b, "first")
	testenv.Eventually(t, "the first is active", first.active.Load)
	b.Stop()
	testenv.Eventually(t, "the first has given up", func() bool { return !first.active.Load() })
	b.Start()
	testenv.Eventually(t, "the first is active again", first.active.Load)
}

// An outage may last for hours, in which each role tries again twice a second.
func TestWhatFailsInAnOutageIsALineAMinute(t *testing.T) {
	b := newBus(t)
	var lines testenv.Log
	log := slog.New(slog.NewTextHandler(&lines, nil))
	r, err := registry.New(t.Context(), b.JS, log)
	if err != nil {
		t.Fatal(err)
	}
	e, err := registry.NewElection(t.Context(), b.JS, "r", "id", log)
	if err != nil {
		t.Fatal(err)
	}
	b.Stop()
	testenv.Background(t, func(ctx context.Context) error {
		return e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	})
	testenv.Background(t, func(ctx context.Context) error {
		return r.Instances.Announce(ctx, registry.Instance{ID: "id", Role: "r", Endpoints: registry.NoEndpoints})
	})
	texts := []string{"election not possible, trying again", "instance could not beat"}
	for _, text := range texts {
		testenv.Eventually(t, text, func() bool { return strings.Contains(lines.String(), text) })
	}
	first := time.Now()
	testenv.Eventually(t, "both are tried again", func() bool { return time.Since(first) > 3*registry.BeatAgainAfter })
	for _, text := range texts {
		if n := strings.Count(lines.String(), text); n != 1 {
			t.Errorf("%s: got %d lines, want 1", text, n)
		}
	}
}

func TestAnElectionEndsWithItsWork(t *testing.T) {
	b := newBus(t)
	e, err := registry.NewElection(t.Context(), b.JS, "r", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, want := range []error{broken, nil} {
		if got := e.Run(t.Context(), func(context.Context) error { return want }); !errors.Is(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if _, err := e.Active(t.Context()); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("got %v for who is active, want ErrNotFound", err)
		}
	}
	if _, err := registry.NewElection(t.Context(), b.JS, "r", "a.b", nil); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
