package embedded_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
)

// disk stands where fsync is called and notes what it was called for.
type disk struct {
	// beneath is what happens in an fsync; nil succeeds at once. It is set
	// before anyone waits at the barrier.
	beneath func(*os.File) error

	mu    sync.Mutex
	safe  map[string]fs.FileInfo // as it was when its last fsync began, by path
	names []string               // base names of what was fsynced since the last take
	then  func(path string)      // is called after each fsync, nil for nothing
}

// during has then called in each round from now on, after each fsync.
func (d *disk) during(then func(path string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.then = then
}

func (d *disk) fsync(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if d.beneath != nil {
		if err := d.beneath(f); err != nil {
			return err
		}
	}
	if then := d.note(f, info); then != nil {
		then(filepath.Clean(f.Name()))
	}
	return nil
}

func (d *disk) note(f *os.File, info fs.FileInfo) (then func(path string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.safe == nil {
		d.safe = map[string]fs.FileInfo{}
	}
	d.safe[filepath.Clean(f.Name())] = info
	d.names = append(d.names, info.Name())
	return d.then
}

// take returns the base names of what was fsynced since the last take.
func (d *disk) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.names
	d.names = nil
	return names
}

// unsafe returns the paths of the stream's blocks that would not survive a
// power loss as they are now, and of all directories above them that were
// never fsynced.
func (d *disk) unsafe(t *testing.T, store, stream string) []string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var bad []string
	all := blocks(t, store, stream)
	for _, path := range all {
		now, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		was := d.safe[path]
		if was == nil || !os.SameFile(was, now) || was.Size() != now.Size() {
			bad = append(bad, path)
		}
	}
	for dir := filepath.Dir(all[0]); len(dir) >= len(store); dir = filepath.Dir(dir) {
		now, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if was := d.safe[dir]; was == nil || !os.SameFile(was, now) {
			bad = append(bad, dir)
		}
	}
	return bad
}

// blocks are the paths of the stream's blocks. It fails the test if there are
// none, as all tests would pass if the server kept them elsewhere.
func blocks(t *testing.T, store, stream string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("got blocks %v, %v; want some", paths, err)
	}
	return paths
}

// lazy starts a server that leaves fsync to the barrier, with a stream S.
func lazy(t *testing.T, d *disk) (s *embedded.Server, nc *nats.Conn, store string) {
	t.Helper()
	store = t.TempDir()
	s = start(t, embedded.Config{Dir: store, Barrier: true})
	s.Barrier().SetFsync(d.fsync)
	nc = dial(t, s)
	createStream(t, nc, "S")
	return s, nc, store
}

func createStream(t testing.TB, nc *nats.Conn, name string) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name, Subjects: []string{strings.ToLower(name) + ".>"},
		})
		if err == nil {
			return stream
		}
		if time.Now().After(late) { // the files of a deleted stream of this name may go after the answer
			t.Fatal(err)
		}
	}
}

// put stores a message of size bytes and returns once it is acknowledged.
func put(ctx context.Context, nc *nats.Conn, subject string, size int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, subject, make([]byte, size))
	return err
}

// putSafely stores messages and then waits at the barrier of S.
func putSafely(t *testing.T, s *embedded.Server, nc *nats.Conn, messages, size int) {
	t.Helper()
	for range messages {
		if err := put(t.Context(), nc, "s.x", size); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Barrier().Sync(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
}
