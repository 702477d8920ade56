package disk

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyExt4AsItIsMountedByDefaultTearsNoRename(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, options string
		want          bool
	}{
		{"ext4", "rw", false},
		{"ext4", "rw,discard,resuid=65534", false},
		{"ext4", "rw,noauto_da_alloc", true},
		{"ext4", "noauto_da_alloc,rw", true},
		{"ext4", "rw,data=journal", false},
		{"ext4", "rw,data=writeback", true},
		{"ext4", "rw,nobarrier", true},
		{"ext3", "rw", true},
		{"xfs", "rw", true},
		{"btrfs", "rw", true},
		{"overlay", "rw,lowerdir=/a", true},
		{"", "", true},
	}
	for _, test := range tests {
		if got := tearsRenames(test.kind, test.options); got != test.want {
			t.Errorf("%s with %s: got %v, want %v", test.kind, test.options, got, test.want)
		}
	}
}

func TestAMountPointIsNoPrefixOfANeighboursName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mountpoint, path string
		want             bool
	}{
		{"/", "/data", true},
		{"/data", "/data", true},
		{"/data", "/data/fl", true},
		{"/data", "/data2/fl", false},
		{"/data/fl", "/data", false},
	} {
		if got := below(test.mountpoint, test.path); got != test.want {
			t.Errorf("%s below %s: got %v, want %v", test.path, test.mountpoint, got, test.want)
		}
	}
}

// The folder's own mount counts, also below others and behind a link.
func TestTheFileSystemIsThatOfTheFolder(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/proc", link} {
		if kind, tears := FileSystem(dir); kind != "proc" || !tears {
			t.Errorf("%s: got %q, %v, want proc, which may tear", dir, kind, tears)
		}
	}
	if kind, tears := FileSystem(filepath.Join(link, "missing")); kind != "" || !tears {
		t.Errorf("a folder that does not exist: got %q, %v, want nothing, which may tear", kind, tears)
	}
}
