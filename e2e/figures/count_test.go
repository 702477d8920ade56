package main

import (
	"strings"
	"testing"
)

func TestFiguresAreWhatTheSourcesHave(t *testing.T) {
	c := newCounts()
	for _, file := range []struct{ name, source string }{
		{"shared/a/a.go", "// Package a is one.\npackage a\n\n// T is.\ntype T[K any] struct{}\n\nfunc (t *T[K]) M() {} // says\n\nfunc (T[K]) m() {}\n"},
		{"shared/a/b.go", "package a\n\ntype u int\n\nfunc (u) Hidden() {}\n\nconst X, y = 1, 2\n\nfunc F() {}\n"},
		{"services/b/main.go", "package main\n\nvar Exported = 1\n"},
		{"shared/testenv/x.go", "package testenv\n\nfunc Tool() {}\n"},
		{"e2e/bench/main.go", "package main\n"},
		{"shared/a/a_test.go", "package a\n\nfunc ExampleT() {\n\t// Output: 1\n}\n\nfunc ExampleF() {}\n"},
	} {
		if err := c.add(file.name, []byte(file.source)); err != nil {
			t.Fatal(err)
		}
	}
	var got strings.Builder
	c.print(&got)
	const want = `| figure | count |
| --- | --- |
| lines of the product | 21 |
| lines of test tools | 4 |
| lines of tests | 7 |
| files of the largest package | 2 (` + "`shared/a`" + `) |
| methods of the largest type | 2 (` + "`shared/a.T`" + `) |
| lines of comment in the product | 9.5 % |
| examples that run as tests | 1 |
| exported names | 4 |
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if err := c.add("x.go", []byte("no Go")); err == nil {
		t.Error("got no error of what is no Go")
	}
}
