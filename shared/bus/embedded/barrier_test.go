package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}

func TestSyncBringsTheStreamAndTheWayToItToTheDisk(t *testing.T) {
	d := &disk{}
	s, nc, store := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	if got := d.unsafe(t, store, "S"); len(got) > 0 {
		t.Errorf("got %v not on the disk", got)
	}
	for _, name := range []string{"meta.inf", "meta.sum"} {
		if d.safe[filepath.Join(store, "jetstream", "$G", "streams", "S", name)] == nil {
			t.Errorf("the stream's %s is not on the disk", name)
		}
	}
}

func TestSyncTouchesOnlyWhatHasChanged(t *testing.T) {
	d := &disk{}
	s, nc, _ := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	d.take()
	if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	if got := d.take(); len(got) > 0 {
		t.Errorf("nothing written: got fsyncs of %v, want none", got)
	}
	putSafely(t, s, nc, 1, 100)
	if got, want := d.take(), []string{"1.blk"}; !slices.Equal(got, want) {
		t.Errorf("one message written: got fsyncs of %v, want %v", got, want)
	}
}

func TestWritersShareAnFsyncThatBeganAfterTheirWrite(t *testing.T) {
	const writers, each = 64, 20
	var rounds atomic.Int64
	d := &disk{beneath: func(*os.File) error {
		rounds.Add(1)
		<-time.After(2 * time.Millisecond) // a disk takes its time
		return nil
	}}
	s, nc, store := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	rounds.Store(0)
	block := blocks(t, store, "S")[0]
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for range each {
				if err := put(t.Context(), nc, "s.x", 100); err != nil {
					return err
				}
				written, err := os.Stat(block)
				if err != nil {
					return err
				}
				if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
					return err
				}
				d.mu.Lock()
				safe := d.safe[block].Size()
				d.mu.Unlock()
				if safe < written.Size() {
					return fmt.Errorf("got %d bytes on the disk, want the %d that were written", safe, written.Size())
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, most := rounds.Load(), int64(writers*each/4); got > most {
		t.Errorf("got %d fsyncs for %d messages, want at most %d", got, writers*each, most)
	}
}

func TestSyncRefusesWhatIsNoStream(t *testing.T) {
	s, _, _ := lazy(t, &disk{})
	for _, name := range []string{"", ".", "..", "../streams/S", "S/msgs", "S.x", "*", "T", "S\x00"} {
		if err := s.Barrier().Sync(t.Context(), name); !errors.Is(err, embedded.ErrNoStream) {
			t.Errorf("%q: got %v, want ErrNoStream", name, err)
		}
	}
}

func TestAFailedFsyncReachesAllWhoWaitAndAllAfterThem(t *testing.T) {
	const waiters = 8
	broken := errors.New("broken")
	began, fail := make(chan struct{}, 1), make(chan struct{})
	var armed atomic.Bool
	d := &disk{beneath: func(f *os.File) error {
		if armed.Load() && strings.HasSuffix(f.Name(), ".blk") {
			began <- struct{}{}
			<-fail
			return broken
		}
		return nil
	}}
	s, nc, _ := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	createStream(t, nc, "T")
	armed.Store(true)
	results := make(chan error, waiters)
	wait := func() { results <- s.Barrier().Sync(t.Context(), "S") }
	if err := put(t.Context(), nc, "s.x", 100); err != nil {
		t.Fatal(err)
	}
	go wait()
	<-began
	for range waiters - 1 {
		go wait()
	}
	armed.Store(false) // from now on the disk says that all is well
	close(fail)
	for range waiters {
		if err := <-results; !errors.Is(err, embedded.ErrSyncFailed) || !errors.Is(err, broken) {
			t.Errorf("got %v, want ErrSyncFailed: broken", err)
		}
	}
	if err := s.Barrier().Sync(t.Context(), "S"); !errors.Is(err, embedded.ErrSyncFailed) {
		t.Errorf("later: got %v, want ErrSyncFailed", err)
	}
	if err := s.Barrier().Sync(t.Context(), "T"); err != nil {
		t.Errorf("another stream: got %v, want nil", err)
	}
}

func TestStopWaitsForTheRoundInProgressAndLetsNobodyInAfterwards(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	d := &disk{beneath: func(*os.File) error {
		if once.CompareAndSwap(false, true) {
			close(began)
			<-goOn
		}
		return nil
	}}
	s, nc, _ := lazy(t, d)
	if err := put(t.Context(), nc, "s.x", 100); err != nil {
		t.Fatal(err)
	}
	waited, stopped := make(chan error, 1), make(chan struct{})
	go func() { waited <- s.Barrier().Sync(t.Context(), "S") }()
	<-began
	go func() { s.Stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("Stop returned during an fsync")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-stopped
	if err := <-waited; err != nil {
		t.Errorf("in progress: got %v, want nil", err)
	}
	if err := s.Barrier().Sync(t.Context(), "S"); !errors.Is(err, embedded.ErrStopped) {
		t.Errorf("afterwards: got %v, want ErrStopped", err)
	}
}

func TestANewServerTrustsNothingThatTheLastOneWrote(t *testing.T) {
	s, nc, store := lazy(t, &disk{})
	if err := put(t.Context(), nc, "s.x", 100); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	d := &disk{}
	s = start(t, embedded.Config{Dir: store})
	s.Barrier().SetFsync(d.fsync)
	if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	if got := d.unsafe(t, store, "S"); len(got) > 0 {
		t.Errorf("got %v not on the disk", got)
	}
}

func TestSyncLeavesWhenItsContextEndsWhileOthersFsync(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	d := &disk{beneath: func(*os.File) error {
		if once.CompareAndSwap(false, true) {
			close(began)
			<-goOn
		}
		return nil
	}}
	s, _, _ := lazy(t, d)
	first := make(chan error, 1)
	go func() { first <- s.Barrier().Sync(t.Context(), "S") }()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Barrier().Sync(ctx, "S"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
