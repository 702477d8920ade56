package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"flightline/shared/disk"
)

func TestAFolderHasHardLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := disk.CheckHardLinks(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v left behind", left, err)
	}
	if err := disk.CheckHardLinks(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("a folder that does not exist: got %v", err)
	}
	if err := disk.CheckHardLinks("/proc"); err == nil {
		t.Error("got hard links in /proc")
	}
}
