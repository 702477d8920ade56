package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// kind is what a file is for.
type kind int

const (
	product kind = iota
	tools        // for tests, but no tests themselves
	tests
)

// kindOf decides by the path, which is relative to the root.
func kindOf(name string) kind {
	folders := strings.Split(path.Dir(name), "/")
	switch {
	case strings.HasSuffix(name, "_test.go"):
		return tests
	case folders[0] == "e2e", slices.ContainsFunc(folders, func(f string) bool { return f == "testenv" || f == "certstest" }):
		return tools
	}
	return product
}

// counts is what was counted so far.
type counts struct {
	lines    map[kind]int
	comments int            // lines of the product that are nothing but a comment
	files    map[string]int // of the product, by package
	methods  map[string]int // of the product, by type
	exported int            // names of the product
	examples int            // that run as tests
}

func newCounts() *counts {
	return &counts{lines: map[kind]int{}, files: map[string]int{}, methods: map[string]int{}}
}

// add counts a Go file, which is named relative to the root.
func (c *counts) add(name string, source []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	of := kindOf(name)
	c.lines[of] += bytes.Count(source, []byte("\n"))
	switch of {
	case tests:
		for _, example := range doc.Examples(file) {
			if example.Output != "" || example.EmptyOutput {
				c.examples++
			}
		}
	case product:
		folder := path.Dir(name)
		c.files[folder]++
		c.comments += commentLines(fset, file, source)
		for _, decl := range file.Decls {
			c.declare(folder, file.Name.Name, decl)
		}
	case tools:
	}
	return nil
}

// commentLines counts the lines that begin within a comment.
func commentLines(fset *token.FileSet, file *ast.File, source []byte) (n int) {
	lines := bytes.Split(source, []byte("\n"))
	for _, group := range file.Comments {
		for _, comment := range group.List {
			from, to := fset.Position(comment.Pos()).Line, fset.Position(comment.End()).Line
			if bytes.HasPrefix(bytes.TrimSpace(lines[from-1]), []byte("/")) {
				n += to - from + 1
			}
		}
	}
	return n
}

// declare counts methods and exported names. A method is exported if its type is.
func (c *counts) declare(folder, pkg string, decl ast.Decl) {
	var names []*ast.Ident
	switch d := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, d.Name)
		if d.Recv != nil {
			of := receiver(d.Recv.List[0].Type)
			c.methods[folder+"."+of]++
			if !ast.IsExported(of) {
				return
			}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name)
			case *ast.ValueSpec:
				names = append(names, s.Names...)
			}
		}
	}
	for _, name := range names {
		if name.IsExported() && pkg != "main" {
			c.exported++
		}
	}
}

// receiver is the name of the type of a method, pointer or generic or not.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// print writes the table.
func (c *counts) print(out io.Writer) {
	folder, files := largest(c.files)
	of, methods := largest(c.methods)
	share := 100 * float64(c.comments) / float64(max(1, c.lines[product]))
	for _, row := range [][2]string{
		{"figure", "count"},
		{"---", "---"},
		{"lines of the product", fmt.Sprint(c.lines[product])},
		{"lines of test tools", fmt.Sprint(c.lines[tools])},
		{"lines of tests", fmt.Sprint(c.lines[tests])},
		{"files of the largest package", fmt.Sprintf("%d (`%s`)", files, folder)},
		{"methods of the largest type", fmt.Sprintf("%d (`%s`)", methods, of)},
		{"lines of comment in the product", fmt.Sprintf("%.1f %%", share)},
		{"examples that run as tests", fmt.Sprint(c.examples)},
		{"exported names", fmt.Sprint(c.exported)},
	} {
		_, _ = fmt.Fprintf(out, "| %s | %s |\n", row[0], row[1])
	}
}

// largest is the key of the largest number, the first of several.
func largest(numbers map[string]int) (key string, n int) {
	keys := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	if len(keys) == 0 {
		return "", 0
	}
	return keys[0], numbers[keys[0]]
}
