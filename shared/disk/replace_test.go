package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"flightline/shared/disk"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, target := filepath.Join(dir, "file"), filepath.Join(dir, "target")
	for _, name := range []string{target, path + ".new"} { // the second is of a process that was killed
		if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := disk.ReplaceFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "new", target: "old"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v, want a file that only its owner reads", info, err)
	}
	if err := disk.ReplaceFile(filepath.Join(dir, "missing", "file"), nil); !os.IsNotExist(err) {
		t.Errorf("in a folder that does not exist: got %v", err)
	}
}
