// Package checkout lists the files of the repository by what git tracks. A test
// of the source reads this list, so a program that a user adds to the folder,
// such as the README's hello/, breaks no test.
package checkout

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flightline/e2e/require"
)

// List returns the files that git tracks below root and that exist, as sorted
// slash-separated paths relative to root. A new file counts after git add. It
// fails where git is missing or root is in no checkout.
func List(ctx context.Context, root string) ([]string, error) {
	// The checkout may belong to another user.
	cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "ls-files", "-z")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, nil
}

// Files is List for a test, which it skips without a list.
func Files(t testing.TB, root string) []string {
	t.Helper()
	files, err := List(t.Context(), root)
	if err != nil {
		require.Skip(t, "git", err.Error())
	}
	return files
}

// Packages returns the folders below root that have Go files and belong to the
// module of root, as import paths of that module. Folders that the go tool
// ignores, such as testdata, are left out.
func Packages(t testing.TB, root, module string) []string {
	t.Helper()
	files := Files(t, root)
	var nested []string
	for _, name := range files {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			nested = append(nested, path.Dir(name)+"/")
		}
	}
	var packages []string
	for _, name := range files {
		folder := path.Dir(name)
		if path.Ext(name) != ".go" || ignored(folder) || slices.ContainsFunc(nested, func(other string) bool { return strings.HasPrefix(name, other) }) {
			continue
		}
		packages = append(packages, path.Join(module, folder))
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// ignored reports whether the go tool leaves the folder out of ./...
func ignored(folder string) bool {
	return slices.ContainsFunc(strings.Split(folder, "/"), func(name string) bool {
		return name == "testdata" || name == "vendor" || name != "." && strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
	})
}
