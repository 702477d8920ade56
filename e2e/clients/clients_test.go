// Package clients holds Flightline against its judges: the published packages
// of RunPod and OpenAI, unmodified, in processes of their own, against the
// built binary. The script install, in this folder, puts them in place; a test
// whose package is not there is skipped, unless it is required (package require).
package clients

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

// soon bounds every wait for a fact that should hold within moments, with
// room for a slow machine.
const soon = 2 * time.Minute

func TestMain(m *testing.M) {
	testenv.SetParallel()
	code := m.Run()
	code = max(code, closeShared())
	os.Exit(code) //nolint:forbidigo // it is what TestMain is for
}

// What a test may need; names for package require.
const (
	python = "python"
	node   = "node"
)

// needs skips the test unless the packages in the folder of this name are
// installed from the files that name them here.
func needs(t *testing.T, what, folder string, files ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(require.Clients(t), folder)
	var want []byte
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, content...)
	}
	got, err := os.ReadFile(filepath.Join(dir, "installed-from"))
	if err != nil || !bytes.Equal(got, want) {
		require.Skip(t, what, "the published packages are not there, or others; run e2e/clients/install")
	}
	return dir
}

// needsPython returns the interpreter that has the packages.
func needsPython(t *testing.T, what string) (interpreter string) {
	t.Helper()
	return filepath.Join(needs(t, what, "python", "requirements.txt", "constraints.txt"), "bin", "python")
}

// pythonScript is a script of ours with the published packages at hand.
func pythonScript(t *testing.T, what, script string, env ...string) *exec.Cmd {
	t.Helper()
	return command(t, t.TempDir(), env, needsPython(t, what), absolute(t, script))
}

// nodeScript is the same in JavaScript. Node looks for packages beside the
// script, so there is a folder in which they are.
func nodeScript(t *testing.T, what, script string, env ...string) *exec.Cmd {
	t.Helper()
	packages := needs(t, what, "javascript", "package.json", "package-lock.json")
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	// By the ending even an older Node knows that it is a module.
	copied := filepath.Join(dir, strings.TrimSuffix(filepath.Base(script), ".js")+".mjs")
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return command(t, dir, env, "node", copied)
}

// command runs in dir with an environment that the user who runs the tests has no
// part in, but for the path.
func command(t *testing.T, dir string, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), //nolint:forbidigo // see above
		"HOME=" + dir, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS=true",
	}, env...)
	return cmd
}

// scriptWithin bounds a script that goes through all of a client's calls: 20 s on a
// quiet machine, more than 2 minutes at a load of 40.
const scriptWithin = 5 * time.Minute

var jobID = regexp.MustCompile(`(sync-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// transcript runs the command to its end and returns what it printed, with ID
// for ids.
func transcript(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	late := time.AfterFunc(scriptWithin, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, &out, &errs)
	}
	return jobID.ReplaceAllString(out.String(), "${1}ID")
}

// wantGolden compares with the file of this name in testdata.
func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got other lines than wanted:\n%s\nall it printed:\n%s", path, difference(got, string(want)), got)
	}
}

// difference lists the lines that are in one text only.
func difference(got, want string) string {
	var b strings.Builder
	for sign, pair := range map[string][2]string{"got  ": {got, want}, "want ": {want, got}} {
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains(pair[1], line) {
				fmt.Fprintf(&b, "%s%s", sign, line)
			}
		}
	}
	return b.String()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
