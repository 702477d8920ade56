package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/e2e/checkout"
)

// wordsFile has how many banned words each folder still has. It only shrinks:
// -update writes it, unless the sum has grown.
const wordsFile = "testdata/words.txt"

// banned are words that comments, texts for people and documents do without:
// they hide who does what. "The one that" is fine.
var banned = regexp.MustCompile(`(?i)\b(whoever|whomever|anew|(?:is|are|was|were|be|been) told|is said|are said|tells|lies|hears|there is none|has it that|bears? repeating|(?:the )?one that)\b`)

// A word of the list may not be used again. In what is old they become fewer.
func TestBannedWordsBecomeFewer(t *testing.T) {
	got, places := map[string]int{}, map[string][]string{}
	for _, name := range checkout.Files(t, root) {
		if words := bannedIn(t, name); len(words) > 0 {
			folder := path.Dir(name)
			got[folder] += len(words)
			places[folder] = append(places[folder], fmt.Sprintf("%s: %s", name, strings.Join(words, ", ")))
		}
	}
	text, err := os.ReadFile(wordsFile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for line := range strings.Lines(string(text)) {
		folder, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want[folder], err = strconv.Atoi(count); err != nil {
			t.Fatal(err)
		}
	}
	if *update && sum(got) <= sum(want) {
		var lines strings.Builder
		for _, folder := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintf(&lines, "%s %d\n", folder, got[folder])
		}
		if err := os.WriteFile(wordsFile, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("banned words by folder (-recorded +got). If there are fewer, or they moved, run this test with -update; if there are more, "+
			"say it otherwise (CONTRIBUTING.md, \"Words\"):\n%s\n%s", diff, strings.Join(grown(places, got, want), "\n"))
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

// grown returns the places of the folders that have more words than recorded.
func grown(places map[string][]string, got, recorded map[string]int) (all []string) {
	for _, folder := range slices.Sorted(maps.Keys(places)) {
		if got[folder] > recorded[folder] {
			all = append(all, places[folder]...)
		}
	}
	return all
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}
