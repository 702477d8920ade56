package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// bad has something wrong for each thing that the tests look at.
const bad = `<!doctype html><html lang="en"><title>bad</title><body><main style="width: 3000px">
<button></button>
<img src="http://other.example/pixel.png" alt="">
<script>console.error("first", 1); undefinedFunction()</script>
</main></body></html>`

// What finds nothing proves nothing unless it would find something.
func TestABadPageIsFound(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, bad)
	}))
	t.Cleanup(web.Close)
	s := &site{Env: &program.Env{T: t}, url: web.URL, browser: newBrowser(t)}
	p := s.newPage(t)
	p.visit("/")
	for _, want := range []string{"first", "undefinedFunction", "http://other.example/pixel.png"} {
		p.holds("the note of "+want, func() bool { return strings.Contains(strings.Join(p.breaches(), "\n"), want) })
	}
	p.forgive()
	if found := p.violations(); len(found) != 1 || found[0].ID != "button-name" {
		t.Errorf("axe-core: got %+v, want the button without a name", found)
	}
	if p.overflow() == "" {
		t.Error("got nothing wider than the window, want the main element")
	}
}
