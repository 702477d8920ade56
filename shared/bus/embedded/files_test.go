package embedded_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
)

func TestSyncFollowsBlocks(t *testing.T) {
	tests := map[string]func(t *testing.T, s *embedded.Server, store string){
		"while all is in motion": func(*testing.T, *embedded.Server, string) {},
		"after a quiet time":     rest,
	}
	for name, pause := range tests {
		t.Run(name, func(t *testing.T) { followBlocks(t, pause) })
	}
}

// rest makes the directory of S's blocks look as if nothing had happened there
// for an hour, and the barrier know it like that.
func rest(t *testing.T, s *embedded.Server, store string) {
	t.Helper()
	old := time.Now().Add(-time.Hour).Truncate(time.Second).Add(1)
	if err := os.Chtimes(filepath.Dir(blocks(t, store, "S")[0]), old, old); err != nil {
		t.Fatal(err)
	}
	if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
}

// followBlocks has the server do to blocks all that it does, with a pause
// before each.
func followBlocks(t *testing.T, pause func(*testing.T, *embedded.Server, string)) {
	t.Helper()
	const size = 900 << 10 // nine to a block of 8 MB
	d := &disk{}
	s, nc, store := lazy(t, d)
	stream := createStream(t, nc, "S")
	putSafely(t, s, nc, 1, 100)
	check := func(after string, change func() error, fsynced ...string) {
		t.Helper()
		pause(t, s, store)
		d.take()
		if err := change(); err != nil { // the barrier may sweep meanwhile
			t.Fatal(err)
		}
		putSafely(t, s, nc, 1, 100)
		names := d.take()
		for _, name := range fsynced {
			if !slices.Contains(names, name) {
				t.Errorf("after %s: got fsyncs of %v, want %s among them", after, names, name)
			}
		}
		if got := d.unsafe(t, store, "S"); len(got) > 0 {
			t.Errorf("after %s: got %v not on the disk", after, got)
		}
	}
	check("rotation", func() error {
		for range 20 {
			if err := put(t.Context(), nc, "s.x", size); err != nil {
				return err
			}
		}
		return nil
	}, "1.blk", "2.blk", "3.blk", "msgs")
	check("compaction", func() error {
		for seq := uint64(3); seq <= 8; seq++ {
			if err := stream.DeleteMsg(t.Context(), seq); err != nil {
				return err
			}
		}
		return nil
	}, "1.blk", "msgs")
	check("a purge", func() error { return stream.Purge(t.Context()) }, "msgs", "S")
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
		deleteStream(t, js, store)
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

// deleteStream deletes S and returns when its files are gone too, which in one
// of twenty cases is later than the answer. Until then it cannot be made again.
func deleteStream(t *testing.T, js jetstream.JetStream, store string) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"S", ".S"} {
		path := filepath.Join(store, "jetstream", "$G", "streams", name)
		for _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist); _, err = os.Stat(path) {
			<-time.After(time.Millisecond)
		}
	}
}

func TestManyStreamsDoNotKeepAsManyFilesOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 270 streams")
	}
	s, nc, _ := lazy(t, &disk{})
	putSafely(t, s, nc, 1, 100)
	for i := range 270 {
		name := fmt.Sprintf("T%d", i)
		createStream(t, nc, name)
		if err := s.Barrier().Sync(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if open, known := s.Barrier().Open(); open > 256 || known != 271 {
		t.Errorf("got %d open blocks of %d streams, want at most 256 of 271", open, known)
	}
}
