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

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestSyncFollowsBlocks(t *testing.T) {
	const size = 900 << 10 // nine to a block of 8 MB
	d := &disk{}
	s, nc, store := lazy(t, d)
	putSafely(t, s, nc, 20, size)
	if got := len(blocks(t, store, "S")); got < 3 {
		t.Fatalf("got %d blocks, want three or more", got)
	}
	safe := func(after string, changed ...string) {
		t.Helper()
		d.take()
		putSafely(t, s, nc, 1, 100)
		names := d.take()
		for _, name := range changed {
			if !slices.Contains(names, name) {
				t.Errorf("after %s: got fsyncs of %v, want %s among them", after, names, name)
			}
		}
		if got := d.unsafe(t, store, "S"); len(got) > 0 {
			t.Errorf("after %s: got %v not on the disk", after, got)
		}
	}
	safe("rotation")

	stream := createStream(t, nc, "S")
	first := blocks(t, store, "S")[0]
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(2); seq <= 8; seq++ {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.Stat(first); err != nil || os.SameFile(before, now) {
		t.Fatalf("%s was not rewritten: %v", first, err)
	}
	safe("compaction", "1.blk", "msgs")

	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	safe("a purge", "msgs", "S")
	if open, known := s.Barrier().Open(); open != 1 || known != 1 {
		t.Errorf("got %d open blocks of %d streams, want one of one", open, known)
	}
}

func TestSyncCoversTheSettingsOfConsumers(t *testing.T) {
	d := &disk{}
	s, nc, store := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	stream := createStream(t, nc, "S")
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "c"}); err != nil {
		t.Fatal(err)
	}
	putSafely(t, s, nc, 1, 100)
	dir := filepath.Join(store, "jetstream", "$G", "streams", "S", "obs")
	for _, path := range []string{"", "c", "c/meta.inf", "c/meta.sum"} {
		if path = filepath.Join(dir, path); d.safe[path] == nil {
			t.Errorf("%s is not on the disk", path)
		}
	}
}

func TestADeletedStreamIsForgottenAndOneMadeAnewStartsAfresh(t *testing.T) {
	d := &disk{}
	s, nc, store := lazy(t, d)
	js := connect(t, s)
	for _, other := range []bool{false, true} {
		putSafely(t, s, nc, 1, 100)
		if err := js.DeleteStream(t.Context(), "S"); err != nil {
			t.Fatal(err)
		}
		if other { // nobody asks for S, but for another stream
			createStream(t, nc, "T")
			if err := s.Barrier().Sync(t.Context(), "T"); err != nil {
				t.Error(err)
			}
		} else if err := s.Barrier().Sync(t.Context(), "S"); !errors.Is(err, embedded.ErrNoStream) {
			t.Errorf("got %v, want ErrNoStream", err)
		}
		if open, known := s.Barrier().Open(); open != known || known > 1 {
			t.Errorf("got %d open blocks of %d streams, want those of T at most", open, known)
		}
		createStream(t, nc, "S")
		putSafely(t, s, nc, 1, 100)
		if got := d.unsafe(t, store, "S"); len(got) > 0 {
			t.Errorf("made anew: got %v not on the disk", got)
		}
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

func TestManyStreamsDoNotKeepAsManyFilesOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 270 streams")
	}
	s, nc, _ := lazy(t, &disk{})
	for i := range 270 {
		name := fmt.Sprintf("T%d", i)
		createStream(t, nc, name)
		if err := s.Barrier().Sync(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if open, known := s.Barrier().Open(); open > 256 || known != 270 {
		t.Errorf("got %d open blocks of %d streams, want at most 256 of 270", open, known)
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
