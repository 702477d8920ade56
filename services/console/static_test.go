package console

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"
)

// textsOf reads the files of a folder, by their names.
func textsOf(t *testing.T, from fs.ReadFileFS, folder string) map[string]string {
	t.Helper()
	entries, err := fs.ReadDir(from, folder)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		data, err := from.ReadFile(path.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts[e.Name()] = string(data)
	}
	return texts
}

// What a browser loads stays small, without a build step to make it so.
func TestTheBudgetOfScriptsAndStyles(t *testing.T) {
	const maxScripts, maxStyles = 60_000, 30_000
	sizes := map[string]int{}
	for name, text := range textsOf(t, static, "static") {
		sizes[path.Ext(name)] += len(text)
		if path.Ext(name) != ".svg" && (strings.Contains(text, "http:") || strings.Contains(text, "https:")) {
			t.Errorf("%s names another host", name)
		}
	}
	if sizes[".js"] == 0 || sizes[".js"] > maxScripts || sizes[".css"] == 0 || sizes[".css"] > maxStyles {
		t.Errorf("got %v bytes, want at most %d of .js and %d of .css", sizes, maxScripts, maxStyles)
	}
}

// A time has its exact form for who points at it: templates make each one with when.
func TestTimesAreExactOnHover(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 1, 5e6, time.UTC)
	for _, of := range []any{at, at.Format(time.RFC3339Nano)} {
		if got := string(when(of)); !strings.Contains(got, `title="2026-11-25 12:00:01.005 UTC"`) {
			t.Errorf("%v: got %s, want the exact time as its title", of, got)
		}
	}
	for name, text := range textsOf(t, templates, "templates") {
		if strings.Contains(text, "<time") {
			t.Errorf("%s makes a time without when", name)
		}
	}
}

// The policy lets neither an inline script nor an inline style do anything.
func TestTemplatesHaveNothingInline(t *testing.T) {
	for name, text := range textsOf(t, templates, "templates") {
		for _, inline := range []string{" style=", "<style", "<script>", " onclick=", " onload=", "javascript:"} {
			if strings.Contains(text, inline) {
				t.Errorf("%s has %q", name, inline)
			}
		}
	}
}
