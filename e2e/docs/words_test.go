package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

// banned are words that comments, texts for people and documents do without:
// they hide who does what. "The one that" is fine.
var banned = regexp.MustCompile(`(?i)\b(whoever|whomever|anew|(?:is|are|was|were|be|been) told|is said|are said|tells|lies|hears|there is none|has it that|bears? repeating|(?:the )?one that)\b`)

func TestNoBannedWordIsUsed(t *testing.T) {
	for _, name := range checkout.Files(t, root) {
		if words := bannedIn(t, name); len(words) > 0 {
			t.Errorf("%s: has %s: say it otherwise (CONTRIBUTING.md, \"Words\")", name, strings.Join(words, ", "))
		}
	}
}

func TestBannedWordsAreSeen(t *testing.T) {
	const source = `// Package p lies. Whoever is told of the one that
// was made anew, tells one that hears.
package p
import "lies/anew"
type lies struct{}
const text, key = "the queue tells", "anew"
`
	want := []string{"lies", "Whoever", "is told", "anew", "tells", "one that", "hears", "tells"}
	if got := wordsOf(prose(t, "p.go", []byte(source))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// bannedIn returns the banned words of a file. What was decided and released in
// the past stays as it was written.
func bannedIn(t *testing.T, name string) []string {
	t.Helper()
	text := read(t, name)
	switch {
	case strings.HasPrefix(name, "docs/adr/"), name == "CHANGELOG.md", strings.Contains(name, "testdata/"), name == "e2e/docs/words_test.go":
		return nil
	case path.Ext(name) == ".go":
		return wordsOf(prose(t, name, []byte(text)))
	case path.Ext(name) == ".md":
		return wordsOf(text)
	}
	return nil
}

func wordsOf(text string) []string {
	return slices.DeleteFunc(banned.FindAllString(text, -1), func(found string) bool { return strings.EqualFold(found, "the one that") })
}

// prose returns the comments of a Go file and, unless it is a test, its string
// literals of more than a word: messages, errors, and texts of help.
func prose(t *testing.T, name string, source []byte) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Base(name), source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, group := range file.Comments {
		all.WriteString(group.Text() + "\n")
	}
	if strings.HasSuffix(name, "_test.go") {
		return all.String()
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			all.WriteString(lit.Value + "\n")
		}
		return true
	})
	return all.String()
}
