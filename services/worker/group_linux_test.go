package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"flightline/shared/testenv"
)

// The first process of a container is the parent of all that lost theirs: each job would
// leave it a process that has ended.
func TestWhatACommandLeavesIsWaitedFor(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	s := newEnv(t)
	s.shell(t, `sleep 600 & echo 1`)
	s.ended(t, s.submit(t))
	testenv.Eventually(t, "no child is left", func() bool { return len(children(t)) == 0 })
}

// children are the processes whose parent this one is, ended or not.
func children(t *testing.T) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	own := []byte(strconv.Itoa(os.Getpid()))
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		_, after, _ := bytes.Cut(text, []byte(") "))
		if facts := bytes.Fields(after); len(facts) > 1 && bytes.Equal(facts[1], own) {
			pids = append(pids, path)
		}
	}
	return pids
}
