package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"flightline/e2e/require"
	"flightline/shared/testenv"
)

// What the tests need; names for package require.
const (
	chromium = "chromium"
	judges   = "console" // axe-core and TypeScript
)

// newBrowser starts a browser, which ends with the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath(chromium)
	if err != nil {
		require.Skip(t, chromium, "no chromium in PATH; apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, quit := chromedp.NewContext(allocator)
	t.Cleanup(func() { quit(); stop() })
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return browser
}

// page is a window of its own, with cookies of its own.
type page struct {
	t    *testing.T
	site *site
	ctx  context.Context

	mu      sync.Mutex
	console []string // errors and warnings
	foreign []string // addresses of other hosts that were asked
}

// newPage opens a window in which nobody has signed in. At the end of the test it
// fails it for each error of the browser's console, and for each request to another
// host.
func (s *site) newPage(t *testing.T) *page {
	t.Helper()
	p := &page{t: t, site: s}
	ctx, closePage := chromedp.NewContext(s.browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // not in do, whose bound would be the window's
		t.Fatalf("open a window: %v", err)
	}
	p.width(1440)
	t.Cleanup(func() {
		if t.Failed() {
			p.keep("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		closePage()
		for _, line := range p.breaches() {
			t.Error(line)
		}
	})
	return p
}

// breaches are the lines of the browser's console, and the requests to another host.
func (p *page) breaches() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, line := range p.console {
		all = append(all, "the browser's console has "+line)
	}
	for _, address := range p.foreign {
		all = append(all, "the page asked "+address+", want requests to "+p.site.url+" only")
	}
	return all
}

// hear notes what no page may do.
func (p *page) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			p.console = append(p.console, fmt.Sprintf("%s: %s", e.Type, strings.Join(words, " ")))
		}
	case *runtime.EventExceptionThrown:
		p.console = append(p.console, "exception: "+e.ExceptionDetails.Text+exceptionOf(e))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.console = append(p.console, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if strings.HasPrefix(e.Request.URL, "http") && !strings.HasPrefix(e.Request.URL, p.site.url+"/") {
			p.foreign = append(p.foreign, e.Request.URL)
		}
	}
}

func exceptionOf(e *runtime.EventExceptionThrown) string {
	if e.ExceptionDetails.Exception == nil {
		return ""
	}
	return " " + e.ExceptionDetails.Exception.Description
}

// forgive drops what was noted: the browser logs an error for each answer that is
// none of 2xx, which some tests want.
func (p *page) forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.console, p.foreign = nil, nil
}

// do runs actions, which end soon.
func (p *page) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, soon)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v\nat %s:\n%s", what, err, p.address(), p.text("body"))
	}
}

// signIn signs in by the form.
func (s *site) signIn(t *testing.T, key string) *page {
	t.Helper()
	p := s.newPage(t)
	p.visit("/ui/sign-in")
	p.do("sign in",
		chromedp.SendKeys(chromedp.CSS(`input[name="key"]`), key),
		chromedp.Submit(chromedp.CSS(`input[name="key"]`)),
		chromedp.WaitNotPresent(chromedp.CSS(`input[name="key"]`)),
	)
	return p
}

// visit goes to a path of the site.
func (p *page) visit(path string) {
	p.t.Helper()
	p.do("visit "+path, chromedp.Navigate(p.site.url+path), chromedp.WaitReady(chromedp.CSS("body")))
}

// eval evaluates JavaScript and waits for what it promises.
func eval[T any](p *page, script string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, soon)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// quoted is text as JavaScript.
func quoted(text string) string {
	made, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(made)
}

// text is what a person reads in the elements that match, "" if none does.
func (p *page) text(selector string) string {
	got, err := eval[string](p, `[...document.querySelectorAll(`+quoted(selector)+`)].map(e => e.innerText).join("\n")`)
	if err != nil {
		return "" // between two pages
	}
	return got
}

// count is how many elements match.
func (p *page) count(selector string) int {
	got, err := eval[int](p, `document.querySelectorAll(`+quoted(selector)+`).length`)
	if err != nil {
		return -1 // between two pages
	}
	return got
}

// address is the path and query of the page.
func (p *page) address() string {
	at, err := eval[string](p, `location.href`)
	if err != nil {
		return ""
	}
	parsed, err := url.Parse(at)
	if err != nil {
		return at
	}
	return parsed.RequestURI()
}

// reads waits until the elements that match read as wanted, in part.
func (p *page) reads(selector, want string) {
	p.t.Helper()
	p.holds(fmt.Sprintf("%s reads %q", selector, want), func() bool { return strings.Contains(p.text(selector), want) })
}

// holds waits for a fact, and shows the page if it does not come.
func (p *page) holds(what string, fact func() bool) {
	p.t.Helper()
	p.holdsWithin(soon, what, fact)
}

func (p *page) holdsWithin(within time.Duration, what string, fact func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	defer cancel()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for !fact() {
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: not within %v, at %s:\n%s", what, within, p.address(), p.text("body"))
		case <-every.C:
		}
	}
}

// click clicks the first element that matches, as soon as there is one. A person's click
// would not miss an element that is replaced meanwhile, as one by its position does.
func (p *page) click(selector string) {
	p.t.Helper()
	p.holds(selector+" is there to click", func() bool {
		clicked, err := eval[bool](p, `(e => { e?.click(); return Boolean(e) })(document.querySelector(`+quoted(selector)+`))`)
		return err == nil && clicked
	})
}

// focusOn presses the tabulator until the element has the focus.
func (p *page) focusOn(selector string) {
	p.t.Helper()
	p.tabTo(selector, `e.matches(`+quoted(selector)+`)`)
}

// tabTo presses the tabulator until JavaScript is true of the element e that has the focus.
func (p *page) tabTo(what, test string) {
	p.t.Helper()
	p.holds("the focus is on "+what, func() bool {
		at := p.focused(test)
		if !at {
			p.press("\t")
		}
		return at
	})
}

// clickText clicks the link or button with this text, and fails unless there is
// exactly one.
func (p *page) clickText(within, text string) {
	p.t.Helper()
	find := `[...document.querySelectorAll(` + quoted(within+" a, "+within+" button, "+within+" summary") +
		`)].filter(e => e.checkVisibility() && e.innerText.trim() === ` + quoted(text) + `)`
	p.holds("a button "+text, func() bool {
		found, err := eval[int](p, find+`.length`)
		return err == nil && found == 1
	})
	if _, err := eval[chromedp.Void](p, find+`[0].click()`); err != nil {
		p.t.Fatalf("click %q: %v", text, err)
	}
}

// fill writes into a field as a keyboard does. It does not name the field by a node of
// the browser's protocol: after a new page that may be a node of the page before.
func (p *page) fill(selector, text string) {
	p.t.Helper()
	p.holds(selector+" is there to fill", func() bool {
		focused, err := eval[bool](p, `(e => { if (e) { e.value = ""; e.focus() } return Boolean(e) && document.activeElement === e })(document.querySelector(`+quoted(selector)+`))`)
		return err == nil && focused
	})
	p.press(text)
}

// press presses keys as on a keyboard, wherever the focus is.
func (p *page) press(keys string) {
	p.t.Helper()
	p.do("press "+keys, chromedp.KeyEvent(keys))
}

// pressed presses a key that moves to another row, and reports whether it did.
func (p *page) pressed(key string) bool {
	p.t.Helper()
	before := p.text("tr.at")
	p.press(key)
	return p.text("tr.at") != before
}

// fits fails the test if the page is wider than the window.
func (p *page) fits() {
	p.t.Helper()
	if over := p.overflow(); over != "" {
		p.t.Errorf("%s is wider than its window:\n%s", p.address(), over)
	}
}

// overflow is what makes the page wider than the window, "" if nothing does.
func (p *page) overflow() string {
	p.t.Helper()
	over, err := eval[string](p, `document.documentElement.scrollWidth <= innerWidth ? "" :
		[...document.querySelectorAll("main, main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map(e => e.outerHTML.slice(0, 120)).join("\n") || "something"`)
	if err != nil {
		p.t.Fatal(err)
	}
	return over
}

// width makes the window this wide.
func (p *page) width(pixels int64) {
	p.t.Helper()
	p.do("change the width", chromedp.EmulateViewport(pixels, 900))
}

// scheme chooses "light" or "dark".
func (p *page) scheme(name string) {
	p.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.t.Fatalf("choose %s: %v", name, err)
	}
}

// shots is the variable that names the folder for pictures. A test that failed keeps
// one there.
const shots = "FLIGHTLINE_CONSOLE_SHOTS"

// keep writes a picture of the page, if there is a folder for it.
func (p *page) keep(name string) {
	folder := os.Getenv(shots) //nolint:forbidigo // tests have no main to hand them their settings
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, soon)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Logf("no picture of %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600); err != nil {
		p.t.Errorf("keep a picture: %v", err)
	}
}

// eventually waits for a fact of the API.
func eventually(t *testing.T, what string, fact func() bool) {
	t.Helper()
	testenv.Within(t, soon, what, fact)
}
