package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

const dependenciesFile = "../../docs/adr/0012-dependencies.md"

// Every module that our source, tests included, imports by name has its reason
// in the list, and the list names no other.
func TestEachDependencyHasAReason(t *testing.T) {
	text, err := os.ReadFile(dependenciesFile)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1])
	}
	used := modules(t)
	for _, name := range used {
		if !slices.Contains(listed, name) {
			t.Errorf("%s has no row in %s: why do we need it?", name, dependenciesFile)
		}
	}
	for _, name := range listed {
		if !slices.Contains(used, name) {
			t.Errorf("%s is in %s, but nothing imports it", name, dependenciesFile)
		}
	}
}

// modules are the modules that the packages of this one import directly.
func modules(t *testing.T) []string {
	t.Helper()
	imports := strings.Fields(list(t, append([]string{
		"-e", "-tags", "nvml", "-f", `{{join .Imports "\n"}} {{join .TestImports "\n"}} {{join .XTestImports "\n"}}`,
	}, checkout.Packages(t, "../..", "flightline")...)...))
	required := strings.Fields(list(t, "-m", "-f", "{{.Path}}", "all"))
	var used []string
	for _, path := range imports {
		of := ""
		for _, module := range required {
			if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(of) {
				of = module
			}
		}
		if of != "" && of != "flightline" && !slices.Contains(used, of) {
			used = append(used, of)
		}
	}
	return used
}

func list(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1", "GOOS=linux") // what is built under a condition counts too
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return string(out)
}
