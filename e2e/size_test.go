package e2e

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

// The bounds of the source. What is above one is named in its table with the
// size that it may have. A table only shrinks: an entry that is no longer needed
// fails the test too.
const (
	maxFileBytes    = 1 << 20
	maxFileLines    = 500
	maxPackageFiles = 30
	maxTypeMethods  = 80
)

var (
	longFiles     = map[string]int{}
	largePackages = map[string]int{}
	largeTypes    = map[string]int{}
	// headerLiterals counts, by package, the literals that spell a header of NATS.
	headerLiterals = map[string]int{"services/admin": 7}
)

// within compares sizes with a bound and the exceptions from it.
func within(sizes map[string]int, bound int, exceptions map[string]int) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if most := max(bound, exceptions[name]); sizes[name] > most {
			problems = append(problems, fmt.Sprintf("%s: got %d, want %d at most", name, sizes[name], most))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if sizes[name] <= bound {
			problems = append(problems, fmt.Sprintf("%s: got %d, which needs no exception: remove it", name, sizes[name]))
		}
	}
	return problems
}

// A program left a larger file in the folder, and it was added by mistake.
func TestEveryFileOfTheRepositoryIsSmall(t *testing.T) {
	for _, name := range checkout.Files(t, "..") {
		if info, err := os.Stat(filepath.Join("..", name)); err != nil || info.Size() > maxFileBytes {
			t.Errorf("%s: got more than %d bytes (%v)", name, maxFileBytes, err)
		}
	}
}

func TestFilesPackagesAndTypesStaySmall(t *testing.T) {
	lines, files, methods := map[string]int{}, map[string]int{}, map[string]int{}
	for _, name := range checkout.Files(t, "..") {
		if path.Ext(name) != ".go" {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		lines[name] = bytes.Count(source, []byte("\n"))
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files[path.Dir(name)]++
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range methodsIn(file) {
			methods[path.Dir(name)+"."+of]++
		}
	}
	for what, problems := range map[string][]string{
		"lines of a file":    within(lines, maxFileLines, longFiles),
		"files of a package": within(files, maxPackageFiles, largePackages),
		"methods of a type":  within(methods, maxTypeMethods, largeTypes),
	} {
		for _, problem := range problems {
			t.Errorf("%s: %s", what, problem)
		}
	}
}

// A header's name is a constant of jetstream or of shared/bus.
func TestOnlyTheBusSpellsHeadersOfNATS(t *testing.T) {
	found := map[string]int{}
	for _, dir := range []string{"shared", "services"} {
		eachFile(t, dir, func(fset *token.FileSet, file *ast.File) {
			folder := filepath.ToSlash(filepath.Dir(fset.Position(file.Pos()).Filename))
			found[strings.TrimPrefix(folder, "../")] += len(headersIn(file))
		})
	}
	maps.DeleteFunc(found, func(folder string, _ int) bool { return strings.HasPrefix(folder+"/", "shared/bus/") })
	for _, problem := range within(found, 0, headerLiterals) {
		t.Errorf("literals of headers of NATS: %s", problem)
	}
}

func TestTheBoundsSeeWhatTheyForbid(t *testing.T) {
	sizes := map[string]int{"small": 3, "large": 12, "known": 12, "mended": 10}
	got := within(sizes, 10, map[string]int{"known": 12, "mended": 12, "gone": 12})
	want := []string{
		"large: got 12, want 10 at most", "gone: got 0, which needs no exception: remove it",
		"mended: got 10, which needs no exception: remove it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	const source = `package p
func (t *T) A() { m.Header.Get("Nats-Sequence") }
func (t T[K]) B() { kv["Nats"] }
func C() { say("the Nats-Sequence header") }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if methods := methodsIn(file); !slices.Equal(methods, []string{"T", "T"}) || len(headersIn(file)) != 1 {
		t.Errorf("got methods of %q and %d headers, want two of T and one", methods, len(headersIn(file)))
	}
}

// methodsIn names the type of each method that the file declares.
func methodsIn(file *ast.File) (types []string) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		of := f.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		switch generic := of.(type) {
		case *ast.IndexExpr:
			of = generic.X
		case *ast.IndexListExpr:
			of = generic.X
		}
		if name, ok := of.(*ast.Ident); ok {
			types = append(types, name.Name)
		}
	}
	return types
}

// headersIn are the file's literals that begin as the headers of NATS do.
func headersIn(file *ast.File) (found []*ast.BasicLit) {
	for _, lit := range literalsIn(file) {
		if text, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(text, "Nats-") {
			found = append(found, lit)
		}
	}
	return found
}
