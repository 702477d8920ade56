package console

import (
	"strings"
	"testing"
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
}
