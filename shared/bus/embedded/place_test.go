package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"flightline/shared/bus/embedded"
)

// A server that started again in an empty folder would have none of its streams.
func TestAStoreThatWasRemovedOrReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s := start(t, embedded.Config{Dir: dir})
	check := func(when string, want bool) {
		t.Helper()
		if err := s.CheckPlace(); (err == nil) != want {
			t.Errorf("%s: got %v, want it in place: %v", when, err, want)
		}
		if err := s.TestWrite(); (err == nil) != want {
			t.Errorf("%s: got %v, want that it takes writes: %v", when, err, want)
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	check("started", true)
	move(dir, dir+".away")
	check("renamed", false)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check("another folder in its place", false)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	move(dir+".away", dir)
	check("put back", true)
}
