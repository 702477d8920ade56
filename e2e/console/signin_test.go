package console

import (
	"fmt"
	"strings"
	"testing"

	"flightline/shared/client"
)

func walkSignIn(t *testing.T, s *site) {
	p := s.newPage(t)
	p.visit("/ui/e/none/webhooks?failed=true")
	p.fill(`input[name="key"]`, "no-such-key")
	p.press("\r")
	p.reads("body", "No such API key")
	p.forgive() // 401
	p.accessible()
	p.fill(`input[name="key"]`, s.scoped(t, "read:*"))
	p.press("\r")
	p.holds("the page that was asked for", func() bool { return strings.Contains(p.text("body"), "needs the scope control") })
	p.forgive() // 403
	p.visit("/ui/")
	p.reads("h1", "Overview")
	p.hide(true)
	const signOut = `(async () => (await fetch("/ui/sign-out", {method: "POST", redirect: "manual", body: new URLSearchParams(new FormData(document.querySelector(".menu form")))})).type)()`
	if got, err := eval[string](p, signOut); err != nil || got != "opaqueredirect" {
		t.Fatalf("sign out: got %s, %v", got, err)
	}
	p.hide(false)
	p.holds("the sign-in, once the page is seen", func() bool { return strings.HasPrefix(p.address(), "/ui/sign-in") })
}

// hide has the page believe that nobody sees it, or that somebody does again.
func (p *page) hide(hidden bool) {
	p.t.Helper()
	script := fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, value: %t}), document.dispatchEvent(new Event("visibilitychange"))`, hidden)
	if _, err := eval[bool](p, script); err != nil {
		p.t.Fatal(err)
	}
}

// scopeWalks are what keys with few scopes see and may press, page by page.
var scopeWalks = map[string][]scopePage{
	"read:scoped": {
		{path: "/e/scoped/jobs/JOB", lacks: "Cancel"},
		{path: "/e/scoped", lacks: "Pause"},
		{path: "/e/scoped/try", lacks: "Run"},
		{path: "/e/scoped/webhooks", refused: "needs the scope control"},
		{path: "/e/other/jobs", refused: mayNot},
		{path: "/machines", refused: "needs the scope pods"},
		{path: "/system", lacks: "Create"},
	},
	"submit:scoped": {
		{path: "/e/scoped/try", has: "Run"},
		{path: "/e/scoped/jobs/JOB", refused: mayNot},
		{path: "/e/other/try", refused: mayNot},
	},
	"admin:scoped": {
		{path: "/e/scoped/jobs/JOB", has: "Cancel"},
		{path: "/e/scoped/try", has: "Run"},
		{path: "/e/scoped", lacks: "Pause"},
		{path: "/system", lacks: "Create"},
	},
	"control": {
		{path: "/system", has: "Create"},
		{path: "/e/scoped/settings", has: "Save"},
		{path: "/e/scoped/jobs/JOB", refused: mayNot},
	},
	"pods": {
		{path: "/machines", lacks: "Quarantine"},
		{path: "/system", lacks: "Create"},
		{path: "/e/scoped/jobs", refused: mayNot},
	},
}

// mayNot is what a page says that the API refuses to fill.
const mayNot = "may not see or do this"

// scopePage is a page as a key sees it. JOB in path is the id of a job that runs.
type scopePage struct {
	path       string
	refused    string // the text of a page that the key may not see
	has, lacks string // a button
}

func walkScopes(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "scoped"})
	s.work(t, "scoped", "scoped-1", 1)
	id := s.run(t, "scoped", order{Hold: true}, "")
	s.endpoint(t, client.EndpointSpec{ID: "other"})
	for scope, pages := range scopeWalks {
		p := s.signIn(t, s.scoped(t, scope))
		for _, page := range pages {
			path := "/ui" + strings.Replace(page.path, "JOB", string(id), 1)
			p.visit(path)
			p.forgive() // 403
			text := p.text("main")
			if strings.Contains(text, mayNot) && !strings.Contains(text, scope) {
				t.Errorf("%s at %s: got %q, want the key's scope in it", scope, path, text)
			}
			if refused := strings.Contains(text, mayNot) || strings.Contains(text, "needs the scope"); refused != (page.refused != "") || !strings.Contains(text, page.refused) {
				t.Errorf("%s at %s: got %q, want %q", scope, path, text, page.refused)
			}
			if page.has != "" && p.buttons(page.has) != 1 {
				t.Errorf("%s at %s: the button %q is missing in %q", scope, path, page.has, text)
			}
			if page.lacks != "" && p.buttons(page.lacks) != 0 {
				t.Errorf("%s at %s: got the button %q", scope, path, page.lacks)
			}
		}
	}
	p := s.signIn(t, s.scoped(t, "submit:scoped"))
	p.visit("/ui/e/scoped/try")
	p.clickText("main", "Run")
	p.reads("main", "is queued. This key may not read it")
	p.forgive() // 403 of the overview
}

// buttons counts the buttons of the page with that text.
func (p *page) buttons(text string) int {
	n, err := eval[int](p, `[...document.querySelectorAll("main button")].filter(b => b.textContent.trim() === `+quoted(text)+`).length`)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}
