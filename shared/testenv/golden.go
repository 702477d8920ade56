package testenv

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares got with what the file has, and writes it there first if update is true:
// the flag -update of the test.
func Golden(t testing.TB, update bool, file, got string) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // it is read by all
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; `task gen` writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the code makes; `task gen` rewrites it (-file +code):\n%s", file, diff)
	}
}
