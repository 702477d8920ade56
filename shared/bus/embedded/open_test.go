package embedded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/bus/embedded"
)

// The server would delete a stream in whose folder it cannot make a file
// (docs/design/jetstream.md#f17).
func TestAStreamThatCannotBeOpenedKeepsItsFiles(t *testing.T) {
	t.Parallel()
	s, store := stopped(t)
	inTheWay := filepath.Join(s, ".write-test")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, store, "stream S would be lost: ")
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	again := start(t, embedded.Config{Dir: store})
	stream, err := connect(t, again).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 1 {
		t.Errorf("got %d messages, want the one that was stored", got)
	}
}

func TestAStreamThatTheServerDeletesIsNoStart(t *testing.T) {
	t.Parallel()
	s, store := stopped(t)
	messages := filepath.Join(s, "msgs")
	if err := os.RemoveAll(messages); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(messages, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, store, "the server could not open a stream and deleted it: ")
}

// stopped is the folder of a stream S with one message, and the store, which no server has.
func stopped(t *testing.T) (stream, store string) {
	t.Helper()
	store = t.TempDir()
	s := start(t, embedded.Config{Dir: store})
	nc := dial(t, s)
	createStream(t, nc, "S")
	if err := put(t.Context(), nc, "s.x", 100); err != nil {
		t.Fatal(err)
	}
	stream = filepath.Dir(filepath.Dir(blocks(t, store, "S")[0]))
	s.Stop()
	return stream, store
}

func refused(t *testing.T, store, why string) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: store})
	if err == nil {
		s.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %q", err, why)
	}
}
