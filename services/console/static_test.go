package console

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"
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

// A time has its exact form for who points at it: templates make each one with when.
func TestTimesAreExactOnHover(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 1, 5e6, time.UTC)
	for _, of := range []any{at, at.Format(time.RFC3339Nano)} {
		if got := string(when(of)); !strings.Contains(got, `title="2026-11-25 12:00:01.005 UTC"`) {
			t.Errorf("%v: got %s, want the exact time as its title", of, got)
		}
	}
	entries, err := fs.ReadDir(templates, "templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := templates.ReadFile("templates/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "<time") {
			t.Errorf("%s makes a time without when", e.Name())
		}
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
