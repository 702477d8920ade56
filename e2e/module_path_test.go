package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"flightline/e2e/require"
)

// The repository can get a public address: one command gives the module another
// path, and every import, those of tests included, still leads to a package.
func TestTheModuleCanMove(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		require.Skip(t, "readme", "bash is not there")
	}
	dir := t.TempDir()
	copyRepository(t, dir)
	if err := os.Mkdir(filepath.Join(dir, ".ci"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".ci/module-path", ".golangci.yml"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	const to = "example.com/them/queue"
	run("bash", ".ci/module-path", to)
	// It fails if an import leads nowhere. To compile everything once more takes a minute.
	for name := range strings.FieldsSeq(run("go", "list", "-test", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")) {
		if strings.HasPrefix(name, module) {
			t.Errorf("%s is still imported, want it below %s", name, to)
		}
	}
	for _, nested := range []string{"e2e/s3", "e2e/compose", "e2e/alerts", "e2e/console", "e2e/peers"} {
		if got := strings.TrimSpace(run("go", "list", "-C", nested, "-m")); got != to+"/"+nested {
			t.Errorf("got the module %s, want %s", got, to+"/"+nested)
		}
	}
}
