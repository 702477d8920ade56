package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
)

// The server keeps a failed write of a stream until it is restarted, at the same
// address and with all that was stored.
func TestRestartLetsAStreamTakeWritesAgain(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	s := start(t, embedded.Config{Dir: store, Listen: "127.0.0.1:0", User: "u", Password: "p"})
	inside := dial(t, s)
	outside, err := bus.Connect(bus.Config{URL: s.URL(), User: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outside.Close)
	stream := createStream(t, inside, "S")
	folder := filepath.Join(filepath.Dir(blocks(t, store, "S")[0]), "2.blk") // in place of the next block
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	stored := uint64(0)
	for err == nil {
		if _, err = inside.Request("s.x", make([]byte, 900<<10), time.Second); err == nil {
			stored++
		}
	}
	if !errors.Is(err, nats.ErrTimeout) || stored == 0 {
		t.Fatalf("got %d writes and %v, want some and then one without an answer", stored, err)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Request("s.x", nil, 200*time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Fatalf("mended: got %v, want still no answer: else nobody needs a restart", err)
	}
	url, id := s.URL(), inside.ConnectedServerId()
	if err := s.TestWrite(); err != nil {
		t.Error(err)
	}
	if err := s.Restart(t.Context(), "S", "T"); err != nil {
		t.Fatal(err)
	}
	if got := s.URL(); got != url {
		t.Errorf("got the address %s, want %s as before", got, url)
	}
	for name, nc := range map[string]*nats.Conn{"inside": inside, "outside": outside} {
		seq := putAgain(t, nc)
		if seq <= stored {
			t.Errorf("%s: got sequence %d, want more than the %d that were stored", name, seq, stored)
		}
	}
	if inside.ConnectedServerId() == id {
		t.Error("got the same server, want another one: writers look for what they wrote before")
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs < stored+2 {
		t.Errorf("got %+v, %v, want all %d messages and the two later ones", info.State, err, stored)
	}
	if !s.JetStream() {
		t.Error("got no JetStream")
	}
	s.Stop()
	if err := s.Restart(t.Context()); !errors.Is(err, embedded.ErrStopped) {
		t.Errorf("stopped: got %v, want ErrStopped", err)
	}
}

// putAgain stores a message as soon as the connection is back.
func putAgain(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		ack, err := js.Publish(t.Context(), "s.x", nil)
		if err == nil {
			return ack.Sequence
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// After a restart, what an fsync had failed for is written to the disk again,
// and those who wait at the barrier are let through.
func TestRestartEndsAFailedFsync(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var armed atomic.Bool
	d := &disk{beneath: func(f *os.File) error {
		if armed.Load() && strings.HasSuffix(f.Name(), ".blk") {
			return broken
		}
		return nil
	}}
	s, nc, store := lazy(t, d)
	putSafely(t, s, nc, 1, 100)
	before, err := os.Stat(blocks(t, store, "S")[0])
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	if err := put(t.Context(), nc, "s.x", 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Barrier().Sync(t.Context(), "S"); !errors.Is(err, embedded.ErrSyncFailed) {
		t.Fatalf("got %v, want ErrSyncFailed", err)
	}
	if got := s.Barrier().Failed(); len(got) != 1 || got["S"] != "broken" {
		t.Errorf("got %v, want S: broken", got)
	}
	armed.Store(false)
	if err := s.Barrier().Sync(t.Context(), "S"); !errors.Is(err, embedded.ErrSyncFailed) {
		t.Fatalf("the disk says that all is well: got %v, want ErrSyncFailed until a restart", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(blocks(t, store, "S")[0])
	if err != nil || os.SameFile(before, after) {
		t.Errorf("got the same file, %v; want a copy that was written", err)
	}
	if got := s.Barrier().Failed(); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	putAgain(t, nc)
	if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
		t.Error(err)
	}
	if got := d.unsafe(t, store, "S"); len(got) > 0 {
		t.Errorf("got %v not on the disk", got)
	}
}
