package testenv

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
)

const (
	// memoryFolder is where Linux keeps files in memory. To make and to remove a file takes a
	// fraction of a disk's time there, and tests of servers do little else.
	memoryFolder = "/dev/shm"
	// memoryRoom is how many bytes have to be free there: containers often have 64 MB.
	memoryRoom = 4 << 30
	// maxFolderAge is the age of a folder whose process was killed: no test takes as long.
	maxFolderAge = time.Hour
	folderName   = "flightline-testenv-*"
)

// memory is memoryFolder, or "" if it has no room.
var memory = sync.OnceValue(func() string {
	usage, err := disk.Usage(memoryFolder)
	if err != nil || usage.Free < memoryRoom {
		return ""
	}
	removeAbandoned(memoryFolder)
	return memoryFolder
})

// removeAbandoned removes the folders that killed processes have left: nothing else gives
// that memory back.
func removeAbandoned(in string) {
	all, _ := filepath.Glob(filepath.Join(in, folderName)) // the pattern is good
	for _, dir := range all {
		if at, err := os.Stat(dir); err == nil && time.Since(at.ModTime()) > maxFolderAge {
			_ = os.RemoveAll(dir) // another process may do so too, or it is another user's
		}
	}
}

// folder makes a folder in another one, "" is where the system has its temporary files. It
// is not t.TempDir, which fails the test when a server's last file appears while the folder
// is being removed.
func folder(t testing.TB, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, folderName) //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("left behind: %v", err)
		}
	})
	return dir
}
