package program

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flightline/shared/testenv"
)

// programs are built once for all tests of a package: to link one takes seconds.
var programs struct {
	mu    sync.Mutex
	dir   string // "" before the first
	built map[string]string
}

// Main runs the tests of a package that uses Build or New, and removes what
// they built: call it in TestMain.
func Main(m *testing.M) {
	testenv.SetParallel() // programs wait for leases and for each other
	m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
}

// Build builds the main package that has the import path, as
// a static file without what debuggers read, and returns where it is.
func Build(t *testing.T, importPath string) string {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	file, err := build(importPath)
	if err != nil {
		t.Fatalf("build %s: %v", importPath, err)
	}
	return file
}

func build(importPath string) (string, error) {
	if file := programs.built[importPath]; file != "" {
		return file, nil
	}
	if programs.dir == "" {
		dir, err := os.MkdirTemp("", "flightline-e2e-")
		if err != nil {
			return "", err
		}
		programs.dir, programs.built = dir, map[string]string{}
	}
	file := filepath.Join(programs.dir, path.Base(importPath))
	// Where the module of the program is, which need not be that of the test.
	dir, err := exec.Command("go", "list", "-e", "-f", "{{.Module.Dir}}", importPath).Output()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, importPath)
	cmd.Dir = strings.TrimSpace(string(dir))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	programs.built[importPath] = file
	return file, nil
}
