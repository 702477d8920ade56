package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"flightline/e2e/checkout"
)

var status = regexp.MustCompile(`^(?:\*\*)?Status:(?:\*\*)? (proposed|accepted|superseded)\b`)

// The index names each decision, and each says on its third line how it stands.
func TestEachDecisionIsInTheIndexAndHasAStatus(t *testing.T) {
	index := read(t, "docs/adr/README.md")
	for _, name := range checkout.Files(t, root) {
		base, ok := strings.CutPrefix(name, "docs/adr/")
		if !ok || base == "README.md" || path.Ext(base) != ".md" {
			continue
		}
		number, _, _ := strings.Cut(base, "-")
		if !strings.Contains(index, "| ["+number+"]("+base+") |") {
			t.Errorf("docs/adr/README.md does not list %s", base)
		}
		if lines := strings.SplitN(read(t, name), "\n", 4); len(lines) < 4 || !status.MatchString(lines[2]) {
			t.Errorf("%s: its third line has no status, as in %q", name, "**Status:** accepted.")
		}
	}
}
