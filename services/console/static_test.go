package console

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

// What a browser loads stays small, without a build step to make it so.
func TestTheBudgetOfScriptsAndStyles(t *testing.T) {
	const maxScripts, maxStyles = 60_000, 30_000
	sizes := map[string]int{}
	entries, err := fs.ReadDir(static, "static")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		sizes[path.Ext(e.Name())] += len(data)
		if text := string(data); path.Ext(e.Name()) != ".svg" && (strings.Contains(text, "http:") || strings.Contains(text, "https:")) {
			t.Errorf("%s names another host", e.Name())
		}
	}
	if sizes[".js"] == 0 || sizes[".js"] > maxScripts || sizes[".css"] == 0 || sizes[".css"] > maxStyles {
		t.Errorf("got %v bytes, want at most %d of .js and %d of .css", sizes, maxScripts, maxStyles)
	}
}

// The policy lets neither an inline script nor an inline style do anything.
func TestTemplatesHaveNothingInline(t *testing.T) {
	entries, err := fs.ReadDir(templates, "templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := templates.ReadFile("templates/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, inline := range []string{" style=", "<style", "<script>", " onclick=", " onload=", "javascript:"} {
			if strings.Contains(string(data), inline) {
				t.Errorf("%s has %q", e.Name(), inline)
			}
		}
	}
}
