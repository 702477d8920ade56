package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

// testName is how a document names a test or a fuzz target.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*)`")

// A promise whose test was renamed or removed is a promise without one.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("docs/security.md names no test")
	}
	known := testsOf(t)
	for _, match := range named {
		if !known[match[1]] {
			t.Errorf("docs/security.md names %s, which is no test of this repository", match[1])
		}
	}
}

// CI finds the fuzz targets by itself: a new one cannot be forgotten.
func TestEachFuzzTargetRunsInCI(t *testing.T) {
	out, err := exec.Command("../.ci/fuzz", "list").CombinedOutput()
	if err != nil {
		t.Fatalf("list: %v\n%s", err, out)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		folder, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if info, err := os.Stat(filepath.Join("..", folder)); err != nil || !info.IsDir() {
			t.Errorf("%q is in no folder", line)
		}
		listed[name] = true
	}
	for name := range testsOf(t) {
		if strings.HasPrefix(name, "Fuzz") && !listed[name] {
			t.Errorf("%s is not run: .ci/fuzz does not find it", name)
		}
		delete(listed, name)
	}
	if len(listed) > 0 {
		t.Errorf("got %v, which are no fuzz targets", listed)
	}
	run, err := os.ReadFile("../.ci/run")
	if err != nil || !strings.Contains(string(run), " .ci/fuzz\n") {
		t.Errorf(".ci/run does not call .ci/fuzz: %v", err)
	}
}

// testsOf returns the names of all tests and fuzz targets of the repository.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, name := range checkout.Files(t, "..") {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				known[fn.Name.Name] = true
			}
		}
	}
	return known
}
