package checkout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"flightline/e2e/checkout"
	"flightline/e2e/require"
)

// newCheckout makes a checkout with these files in it, of which the last is not tracked.
func newCheckout(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			require.Skip(t, "git", err.Error()+": "+string(out))
		}
	}
	git("init", "--quiet")
	for i, name := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("package main\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if i < len(files)-1 {
			git("add", name)
		}
	}
	return root
}

func TestWhatAUserAddsIsNotListed(t *testing.T) {
	root := newCheckout(t, "go.mod", "a/a.go", "a/a_test.go", "a/testdata/b.go", "other/go.mod", "other/o.go", "name with space.md", "gone/gone.go", "hello/main.go")
	if err := os.Remove(filepath.Join(root, "gone", "gone.go")); err != nil {
		t.Fatal(err)
	}
	want := []string{"a/a.go", "a/a_test.go", "a/testdata/b.go", "go.mod", "name with space.md", "other/go.mod", "other/o.go"}
	if got := checkout.Files(t, root); !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	if got := checkout.Packages(t, root, "m"); !slices.Equal(got, []string{"m/a"}) {
		t.Errorf("got packages %q, want m/a", got)
	}
}

// skipped notes that the test was skipped, without ending this one.
type skipped struct {
	testing.TB
	why string
}

func (s *skipped) Helper() {}

func (s *skipped) Skipf(_ string, v ...any) { s.why = v[len(v)-1].(string) } //nolint:forcetypeassert // Skip's own reason

func TestAFolderWithoutGitSkipsTheTestAndSaysWhy(t *testing.T) {
	t.Setenv(require.Variable, "")
	t.Setenv(require.Skipped, "")
	s := &skipped{TB: t}
	if got := checkout.Files(s, t.TempDir()); len(got) > 0 || s.why == "" {
		t.Errorf("got files %q and the reason %q, want a reason", got, s.why)
	}
}
