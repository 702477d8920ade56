package console

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"flightline/e2e/require"
)

// judgesAt is the folder in which axe-core and TypeScript are, of the versions that
// package-lock.json names.
func judgesAt(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(require.Clients(t), "console")
	var want []byte
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, content...)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "installed-from")); err != nil || !bytes.Equal(got, want) {
		require.Skip(t, judges, "axe-core and TypeScript are not there, or others; run e2e/clients/install")
	}
	return filepath.Join(dir, "node_modules")
}

// violation is what axe-core found wrong.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// accessible fails the test for each violation that axe-core calls serious or
// critical.
func (p *page) accessible() {
	p.t.Helper()
	for _, v := range p.violations() {
		for _, node := range v.Nodes[:min(len(v.Nodes), 3)] {
			p.t.Errorf("%s: %s (%s, %s) at %s\n%s", p.address(), v.Help, v.ID, v.Impact, node.HTML, node.FailureSummary)
		}
	}
}

// violations are those that axe-core calls serious or critical.
func (p *page) violations() []violation {
	p.t.Helper()
	source, err := os.ReadFile(filepath.Join(judgesAt(p.t), "axe-core", "axe.min.js"))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := eval[chromedp.Void](p, "{"+string(source)+"\n} undefined"); err != nil {
		p.t.Fatalf("load axe-core: %v", err)
	}
	answer, err := eval[string](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`)
	if err != nil {
		p.t.Fatalf("run axe-core: %v", err)
	}
	var found []violation
	if err := json.Unmarshal([]byte(answer), &found); err != nil {
		p.t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(v violation) bool { return v.Impact != "serious" && v.Impact != "critical" })
}

// modules is where the console's modules are.
const modules = "../../services/console/static"

func TestTheModulesHaveTheTypesTheyClaim(t *testing.T) {
	compiler := filepath.Join(judgesAt(t), ".bin", "tsc")
	files, err := filepath.Glob(modules + "/*.js")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: got %d modules, %v, want some", modules, len(files), err)
	}
	args := append([]string{
		"--allowJs", "--checkJs", "--noEmit", "--strict", "--target", "es2022", "--module", "es2022",
		"--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable", "--types", "",
	}, files...)
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}
