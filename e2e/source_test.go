package e2e

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"flightline/e2e/checkout"
)

// What depguard and go list cannot see: rules about what the source says.

// subject matches a literal that spells a subject or a part of one. Prose
// has spaces, so it does not match.
var subject = regexp.MustCompile(`^(\$KV|\$JS|jobs|due|events|output|payloads|webhooks)\.\S*$`)

// The subjects of Flightline are spelled in package streams, those of JetStream's
// API in package bus.
func TestOnlyStreamsSpellsSubjects(t *testing.T) {
	const api, bus = "$JS.API.", "../shared/bus/"
	for _, dir := range []string{"shared", "services"} {
		eachFile(t, dir, func(fset *token.FileSet, file *ast.File) {
			for _, lit := range literalsIn(file) {
				text, err := strconv.Unquote(lit.Value)
				if err != nil || strings.HasPrefix(text, api) && filepath.Dir(fset.Position(lit.Pos()).Filename)+"/" == bus {
					continue
				}
				if subject.MatchString(text) {
					t.Errorf("%s spells the subject %q, want a name of package streams", fset.Position(lit.Pos()), text)
				}
			}
		})
	}
}

// Put and Update of a bucket drop the ttl of the record, and Put overwrites
// what another has decided; a record is published by compare-and-set.
func TestRecordsAreNeverPutOrUpdated(t *testing.T) {
	eachFile(t, "shared/queue", func(fset *token.FileSet, file *ast.File) {
		for _, call := range putsIn(file) {
			t.Errorf("%s calls %s, want the one write path of move.go", fset.Position(call.Pos()), call.Sel.Name)
		}
	})
}

// A program that was built in the repository's folder must not be committed.
// The README's picture of the console is the one file that is no text; task shots makes it.
func TestTheRepositoryHasOnlyText(t *testing.T) {
	const picture, maxPicture = "docs/console.png", 80 << 10
	for _, name := range checkout.Files(t, "..") {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == picture && len(data) <= maxPicture {
			continue
		}
		if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
			t.Errorf("%s is not text: %d bytes", name, len(data))
		}
	}
}

func TestTheScansSeeWhatTheyForbid(t *testing.T) {
	const source = `package p
import "events.example/x"
func f() {
	kv.Put(ctx, "jobs.a", nil)
	q.records.Update(ctx, "$KV.b", nil, 1)
	kv.Create(ctx, "jobs: not found", nil)
	js.Publish(ctx, "output. Of what", nil)
}`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var puts, subjects []string
	for _, call := range putsIn(file) {
		puts = append(puts, call.Sel.Name)
	}
	for _, lit := range literalsIn(file) {
		if text, err := strconv.Unquote(lit.Value); err == nil && subject.MatchString(text) {
			subjects = append(subjects, text)
		}
	}
	if want := []string{"Put", "Update"}; !slices.Equal(puts, want) {
		t.Errorf("got calls %q, want %q", puts, want)
	}
	if want := []string{"jobs.a", "$KV.b"}; !slices.Equal(subjects, want) {
		t.Errorf("got subjects %q, want %q", subjects, want)
	}
}

// putsIn are the file's calls of methods called Put, PutString or Update,
// whatever they are called on, with a context, a key and a value at least: that
// of a sync.Pool has one argument.
func putsIn(file *ast.File) []*ast.SelectorExpr {
	var found []*ast.SelectorExpr
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Put", "PutString", "Update"}, sel.Sel.Name) && len(call.Args) > 1 {
			found = append(found, sel)
		}
		return true
	})
	return found
}

// literalsIn are the file's string literals, import paths aside.
func literalsIn(file *ast.File) []*ast.BasicLit {
	var found []*ast.BasicLit
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			found = append(found, lit)
		}
		return true
	})
	return found
}

// eachFile parses each Go file of the repository below dir that is not a test,
// and calls look with it.
func eachFile(t *testing.T, dir string, look func(*token.FileSet, *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	for _, name := range checkout.Files(t, "..") {
		if !strings.HasPrefix(name, dir+"/") || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join("..", name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("scan %s: %v", dir, err)
		}
		look(fset, file)
	}
}

// registries are the hosts of package registries, in parts: no file names one,
// this one included. Each tool knows its own.
var registries = [][]string{
	{"docker", "io"},
	{"ghcr", "io"},
	{"gcr", "io"},
	{"quay", "io"},
	{"mcr", "microsoft", "com"},
	{"public", "ecr", "aws"},
	{"proxy", "golang", "org"},
	{"sum", "golang", "org"},
	{"registry", "npmjs", "org"},
	{"pypi", "org"},
	{"files", "pythonhosted", "org"},
}

// registryNamed returns the first registry's host in the text, "" if there is
// none. A name without a scheme before it or a path behind it is no host: Debian
// has a package of such a name.
func registryNamed(text string) string {
	for _, parts := range registries {
		host := strings.Join(parts, ".")
		if strings.Contains(text, host+"/") || strings.Contains(text, "//"+host) {
			return host
		}
	}
	return ""
}

func TestNoFileNamesARegistrysHost(t *testing.T) {
	for text, want := range map[string]bool{
		strings.Join(registries[0], ".") + "/library/nats": true, "https://" + strings.Join(registries[6], ".") + ",direct": true,
		"apt-get install " + strings.Join(registries[0], "."): false, "nats:2": false,
	} {
		if got := registryNamed(text); (got != "") != want {
			t.Errorf("%q: got the host %q, want one: %v", text, got, want)
		}
	}
	for _, name := range checkout.Files(t, "..") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if host := registryNamed(string(text)); host != "" {
			t.Errorf("%s names the registry %s, want the tools' own default", name, host)
		}
	}
}
