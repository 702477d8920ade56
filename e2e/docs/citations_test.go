package docs

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

const root = "../.."

var (
	// citation is how a comment names a document: its path from the root of
	// the repository, and a heading.
	citation = regexp.MustCompile(`[\w./-]+\.md\b(?:#[\w-]+)?`)
	adr      = regexp.MustCompile(`\bADR (\d{4})\b`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	source   = regexp.MustCompile(`\b[\w/]+\.go\b`)
	quoted   = regexp.MustCompile("`((?:shared|services|e2e|streams|docs)/[\\w./-]*\\w)`")
	unslug   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// A comment that cites a document which is not in the repository, or a heading
// that is not in the document, explains nothing.
func TestCommentsCiteWhatExists(t *testing.T) {
	tracked := checkout.Files(t, root)
	found := 0
	for _, name := range tracked {
		if path.Ext(name) != ".go" {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			text := group.Text()
			for _, cited := range citation.FindAllString(text, -1) {
				found++
				if problem := missing(t, cited); problem != "" {
					t.Errorf("%s cites %s: %s", fset.Position(group.Pos()), cited, problem)
				}
			}
			for _, cited := range adr.FindAllStringSubmatch(text, -1) {
				if !slices.ContainsFunc(tracked, func(name string) bool { return strings.HasPrefix(name, "docs/adr/"+cited[1]+"-") }) {
					t.Errorf("%s cites %s: there is no docs/adr/%s-*.md", fset.Position(group.Pos()), cited[0], cited[1])
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("got %d citations of documents, want those of the code", found)
	}
}

// A package comment that names a file of its folder leads a newcomer there.
func TestPackageCommentsNameFilesThatExist(t *testing.T) {
	tracked := checkout.Files(t, root)
	for _, name := range tracked {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, named := range source.FindAllString(file.Doc.Text(), -1) {
			if !slices.Contains(tracked, path.Join(path.Dir(name), named)) && !slices.Contains(tracked, named) {
				t.Errorf("%s: its package comment names %s, which does not exist", name, named)
			}
		}
	}
	for _, found := range quoted.FindAllStringSubmatch(read(t, "CONTRIBUTING.md")+read(t, "docs/architecture.md"), -1) {
		if !slices.ContainsFunc(tracked, func(name string) bool { return name == found[1] || strings.HasPrefix(name, found[1]+"/") }) {
			t.Errorf("a document names %s, which does not exist", found[1])
		}
	}
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	for _, name := range checkout.Files(t, root) {
		if path.Ext(name) != ".md" || strings.Contains(name, "testdata/") {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			target := found[1]
			switch {
			case strings.Contains(target, "://"), strings.HasPrefix(target, "mailto:"):
				continue
			case strings.HasPrefix(target, "#"):
				target = name + target
			default:
				target = path.Join(path.Dir(name), target)
			}
			if problem := missing(t, target); problem != "" {
				t.Errorf("%s links to %s: %s", name, found[1], problem)
			}
		}
	}
}

func TestCitationsAreSeen(t *testing.T) {
	for cited, ok := range map[string]bool{
		"README.md":                   true,
		"docs/design/jetstream.md":    true,
		"docs/design/jetstream.md#f6": true,
		"docs/design/product.md#ttl":  true,
		"docs/design/jetstream.md#f0": false,
		"jetstream.md":                false,
	} {
		if got := citation.FindString("see (" + cited + ")."); got != cited {
			t.Errorf("got %q, want %q", got, cited)
		}
		if problem := missing(t, cited); (problem == "") != ok {
			t.Errorf("%s: got %q, want a problem: %v", cited, problem, !ok)
		}
	}
}

// missing says what is wrong with a path from the root, which may name a
// heading of a document; "" means nothing.
func missing(t *testing.T, cited string) string {
	t.Helper()
	name, anchor, named := strings.Cut(cited, "#")
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		return "no such file"
	}
	if named && !slices.Contains(anchors(read(t, name)), anchor) {
		return "no such heading"
	}
	return ""
}

// anchors returns the fragments by which the headings of a document are linked.
func anchors(text string) []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		plain := unslug.ReplaceAllString(strings.ToLower(found[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
