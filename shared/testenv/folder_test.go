package testenv

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFoldersThatWereLeftAreRemoved(t *testing.T) {
	in := t.TempDir()
	left, used, other := folder(t, in), folder(t, in), filepath.Join(in, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * maxFolderAge)
	for _, dir := range []string{left, other} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	removeAbandoned(in)
	for dir, want := range map[string]bool{left: false, used: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: got %v, want it to exist: %t", dir, err, want)
		}
	}
}
