package registry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/pod"
	"flightline/shared/testenv"
	"flightline/streams"
)

// shortTTL is long enough for a renewal on a busy machine.
const shortTTL = 12 * time.Second

// newRegistry returns a bus with all buckets, and a registry without Run.
func newRegistry(t *testing.T) (*testenv.Server, *Registry) {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

func agingRegistry(t *testing.T, ttl time.Duration) (*testenv.Server, *Registry) {
	t.Helper()
	b, r := newRegistry(t)
	r.SetPodTTL(ttl)
	return b, r
}

// live is the life of a fleet's worker, up to its end.
func (r *Registry) live(ctx context.Context, id string) error {
	p := pod.Pod{ID: id, Endpoint: "ep", Driver: pod.Process, Status: pod.Running}
	if err := r.Pods.Create(ctx, p); err != nil {
		return err
	}
	_, _, err := r.Tokens.IssueForFleet(ctx, "ep", id)
	return err
}

func (r *Registry) die(ctx context.Context, id string) error {
	p, err := r.Pods.Move(ctx, id, pod.Remove, "x", time.Now(), nil)
	if err != nil {
		return err
	}
	return errors.Join(r.Tokens.Revoke(ctx, "ep", id), r.Pods.Forget(ctx, p))
}

// Workers come and go: what is left in the buckets is what lives, and what the last
// TTL left.
func TestWorkersThatAreGoneLeaveNothing(t *testing.T) {
	t.Parallel()
	const workers, alive = 300, 3
	b, r := agingRegistry(t, shortTTL)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range workers {
		g.Go(func() error {
			id := fmt.Sprintf("w-%d", i)
			return errors.Join(r.live(t.Context(), id), r.die(t.Context(), id))
		})
	}
	g.Go(func() error { return r.live(t.Context(), "lost") }) // its host never came back
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var plain [alive]string // made last: beside so many a renewal may come too late
	for i := range alive {
		id := fmt.Sprintf("alive-%d", i)
		if err := r.live(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		var err error
		if plain[i], _, err = r.Tokens.IssueForFleet(t.Context(), "ep", id); err != nil {
			t.Fatal(err)
		}
	}
	isAlive := func(_, worker string) bool { return worker != "lost" }
	left := map[string]uint64{streams.BucketTokens: alive, streams.BucketPods: alive + 1}
	for len(left) > 0 {
		if err := errors.Join(r.Pods.Renew(t.Context()), r.Tokens.Renew(t.Context(), isAlive)); err != nil {
			t.Fatal(err)
		}
		for name, want := range left {
			if b.Messages(t, streams.Bucket(name)) <= want { // what expired too early is missed below
				delete(left, name)
			}
		}
		<-time.After(shortTTL / 12)
	}
	for i, token := range plain {
		if _, err := r.Tokens.Check(t.Context(), token, "ep", fmt.Sprintf("alive-%d", i)); err != nil {
			t.Errorf("worker %d: %v, want its token good", i, err)
		}
	}
}

// What gave way to a newer message of its key comes back when the newer one is gone
// and the server is killed then (docs/adr/0013). A token that does must have expired.
func TestATokenThatWasRevokedIsWorthlessAfterAKill(t *testing.T) {
	t.Parallel()
	for name, ofFleet := range map[string]bool{"a fleet's": true, "of a worker that somebody starts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r := agingRegistry(t, shortTTL)
			if _, _, err := r.Tokens.Issue(t.Context(), "ep", "other"); err != nil { // it keeps the file
				t.Fatal(err)
			}
			plain, made, _, err := r.Tokens.issue(t.Context(), "ep", "w", ofFleet)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Tokens.Check(t.Context(), plain, "ep", "w"); err != nil {
				t.Fatal(err)
			}
			if err := r.Tokens.Refresh(t.Context(), "ep", "w", time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := r.Tokens.Revoke(t.Context(), "ep", "w"); err != nil {
				t.Fatal(err)
			}
			waitUntilExpired(t, r.Tokens.table.Table, workerKey(made.Endpoint, made.Worker))
			b.Kill()
			b.Start()
			_, err = r.Tokens.Check(t.Context(), plain, "ep", "w")
			for errors.Is(err, bus.ErrUnavailable) { // the connection is not back
				_, err = r.Tokens.Check(t.Context(), plain, "ep", "w")
			}
			if !errors.Is(err, ErrUnauthorized) {
				t.Errorf("got %v, want ErrUnauthorized", err)
			}
		})
	}
}

// A token that nobody renews is refused after its TTL, also for a process that
// knows it from memory: no watch reports that the server removed it.
func TestATokenThatNobodyRenewsExpires(t *testing.T) {
	t.Parallel()
	_, r := agingRegistry(t, 2*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	by, _, err := r.Tokens.Issue(t.Context(), "ep", "by-hand")
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := r.Tokens.IssueForFleet(t.Context(), "ep", "w")
	for err == nil {
		<-time.After(20 * time.Millisecond)
		_, err = r.Tokens.Check(t.Context(), plain, "ep", "w")
	}
	if !errors.Is(err, ErrUnauthorized) {
		t.Errorf("got %v, want ErrUnauthorized", err)
	}
	if _, err := r.Tokens.Check(t.Context(), by, "ep", "by-hand"); err != nil {
		t.Errorf("the one that somebody issued: %v, want it good", err)
	}
}

// What a program of the version before wrote has no TTL. Neither may its marker have
// one, nor a later value of its key.
func TestAKeyWhoseValueHadNoTTLKeepsItsMarker(t *testing.T) {
	t.Parallel()
	_, r := agingRegistry(t, shortTTL)
	if _, _, err := r.Tokens.Issue(t.Context(), "ep", "w"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return r.Tokens.Revoke(t.Context(), "ep", "w") },
		func() error { _, _, err := r.Tokens.IssueForFleet(t.Context(), "ep", "w"); return err },
		func() error { return r.Tokens.Revoke(t.Context(), "ep", "w") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.Tokens.table.get(t.Context(), "ep.w"); !got.isLasting() {
			t.Errorf("got %+v, want no TTL", got)
		}
	}
}
