package security

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// browser is a client with cookies that follows no redirect.
type browser struct {
	t    *testing.T
	base string
	http *http.Client
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, base: base, http: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// answer is what a page was answered with.
type answer struct {
	*http.Response
	text string
}

// ask sends a request, a POST if there is a form, with the headers in pairs; "Host" is one.
func (b *browser) ask(path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp, string(text)}
}

func (b *browser) signIn(key string) {
	b.t.Helper()
	if got := b.ask("/ui/sign-in", url.Values{"key": {key}}); got.StatusCode != http.StatusSeeOther {
		b.t.Fatalf("sign in: got %d", got.StatusCode)
	}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// token is that of the forms of a page.
func (b *browser) token(path string) string {
	b.t.Helper()
	found := csrfField.FindStringSubmatch(b.ask(path, nil).text)
	if found == nil {
		b.t.Fatalf("%s has no form", path)
	}
	return found[1]
}

// console starts a dev and returns its address, its administrator's key, and the path of the
// link that signs in.
func console(t *testing.T) (s *program.Env, base, key, once string) {
	t.Helper()
	s = program.New(t)
	d := s.Start("dev", "--no-demo")
	link, base := d.Line("flightline console: "), d.Line(program.Ready)
	var admin struct{ APIKey string }
	program.Decode(t, s.OK("env", "-o", "json"), &admin)
	return s, base, admin.APIKey, strings.TrimPrefix(link, base)
}

// Nobody gets in without a key, forms of other sites do nothing, and no link leads elsewhere.
func TestTheConsoleIsGuarded(t *testing.T) {
	t.Parallel()
	s, base, key, once := console(t)
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	stranger := newBrowser(t, base)
	for path, want := range map[string]int{"/ui/": 303, "/ui/e/ep/jobs": 303, "/ui/live?topics=/ui/": 303, "/ui/sign-in": 200, "/ui/static/app.css": 200, "/ui/static/../console.go": 303} {
		if got := stranger.ask(path, nil); got.StatusCode != want {
			t.Errorf("%s without a session: got %d, want %d", path, got.StatusCode, want)
		}
	}
	if got := stranger.ask("/ui/sign-in", url.Values{"key": {"wrong-key-of-nobody"}}); got.StatusCode != http.StatusUnauthorized || len(got.Cookies()) != 0 {
		t.Errorf("a wrong key: got %d with cookies %v", got.StatusCode, got.Cookies())
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if got := stranger.ask("/ui/sign-in", url.Values{"key": {key}}, headers...); got.StatusCode != http.StatusForbidden {
			t.Errorf("a form of another site, %v: got %d, want 403", headers, got.StatusCode)
		}
	}
	if got := stranger.ask("/ui/sign-in", nil, "Host", "evil.example"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("a foreign name: got %d, want 400", got.StatusCode)
	}
	got := stranger.ask("/ui/sign-in", url.Values{"key": {key}, "next": {"//evil.example/ui/"}})
	if got.Header.Get("Location") != "/ui/" {
		t.Errorf("next elsewhere: got %q, want /ui/", got.Header.Get("Location"))
	}
	if c := got.Cookies(); len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Path != "/ui" || strings.Contains(c[0].Value, key) {
		t.Errorf("got the cookies %v, want an HttpOnly one with SameSite=Strict, without the key", c)
	}
	page := stranger.ask("/ui/", nil)
	if policy := page.Header.Get("Content-Security-Policy"); page.StatusCode != http.StatusOK || !strings.Contains(policy, "default-src 'none'") ||
		!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") || page.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("got %d with the policy %q", page.StatusCode, policy)
	}
	token := stranger.token("/ui/e/ep")
	for name, tc := range map[string]struct {
		token   string
		headers []string
		want    int
	}{
		"no token":      {"", nil, 403},
		"another token": {token + "x", nil, 403},
		"another site":  {token, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"the same site": {token, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"the console":   {token, []string{"Sec-Fetch-Site", "same-origin"}, 303},
	} {
		if got := stranger.ask("/ui/e/ep/pause", url.Values{"csrf": {tc.token}, "minutes": {"15"}}, tc.headers...); got.StatusCode != tc.want {
			t.Errorf("pause with %s: got %d, want %d", name, got.StatusCode, tc.want)
		}
	}
	linked := newBrowser(t, base)
	if got := linked.ask(once, nil); got.StatusCode != http.StatusOK || len(got.Cookies()) != 1 {
		t.Errorf("the link: got %d, %v", got.StatusCode, got.Cookies())
	}
	if got := linked.ask("/ui/", nil); got.StatusCode != http.StatusOK {
		t.Errorf("after the link: got %d", got.StatusCode)
	}
	if got := newBrowser(t, base).ask(once, nil); got.StatusCode != http.StatusUnauthorized || len(got.Cookies()) != 0 {
		t.Errorf("the link, a second time: got %d, want it refused", got.StatusCode)
	}
	if got := linked.ask("/ui/sign-out", url.Values{"csrf": {linked.token("/ui/")}}); got.StatusCode != http.StatusSeeOther {
		t.Errorf("sign out: got %d", got.StatusCode)
	}
	if got := linked.ask("/ui/", nil); got.StatusCode != http.StatusSeeOther {
		t.Errorf("after it: got %d, want the form", got.StatusCode)
	}
}

// A key sees and does what it may over the API, and has buttons for nothing else.
func TestTheConsoleShowsWhatTheKeyMayDo(t *testing.T) {
	t.Parallel()
	s, base, key, _ := console(t)
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	id := program.Submit(s, "ep")
	var reader, controls struct{ ID, Key string }
	program.Decode(t, s.OK("key", "create", "reader", "--scope", "read:ep", "-o", "json"), &reader)
	admin, reads := newBrowser(t, base), newBrowser(t, base)
	admin.signIn(key)
	reads.signIn(reader.Key)
	for path, buttons := range map[string][]string{
		"/ui/e/ep/jobs/" + id: {"/cancel"}, "/ui/e/ep": {"/pause", "/purge"}, "/ui/e/ep/jobs": {`name="do"`},
	} {
		for _, button := range buttons {
			if !strings.Contains(admin.ask(path, nil).text, button) {
				t.Errorf("%s for the administrator has no %s", path, button)
			}
			if got := reads.ask(path, nil); got.StatusCode != http.StatusOK || strings.Contains(got.text, button) {
				t.Errorf("%s for a reader: got %d, %s there %v", path, got.StatusCode, button, strings.Contains(got.text, button))
			}
		}
	}
	token := reads.token("/ui/e/ep")
	for _, path := range []string{"/ui/e/ep/jobs/" + id + "/cancel", "/ui/e/ep/purge", "/ui/e/ep/pause", "/ui/e/ep/settings"} {
		if got := reads.ask(path, url.Values{"csrf": {token}, "minutes": {"0"}}); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s by a reader: got %d, want 403", path, got.StatusCode)
		}
	}
	if got := admin.ask("/ui/e/ep/jobs/"+id+"/cancel", url.Values{"csrf": {token}}); got.StatusCode != http.StatusForbidden {
		t.Errorf("a token of another key: got %d, want 403", got.StatusCode)
	}
	program.Decode(t, s.OK("key", "create", "controls", "--scope", "control", "-o", "json"), &controls)
	other := newBrowser(t, base)
	other.signIn(controls.Key)
	if got := other.ask("/ui/", nil); got.Header.Get("Location") != "/ui/system" || other.ask("/ui/system", nil).StatusCode != http.StatusOK {
		t.Errorf("a key that reads no endpoint: got %d to %q, want 303 to a page that it may see", got.StatusCode, got.Header.Get("Location"))
	}
	s.OK("key", "revoke", reader.ID)
	s.Eventually("the session of a revoked key is over", func() bool { return reads.ask("/ui/e/ep", nil).StatusCode == http.StatusSeeOther })
}

// Whatever a string of somebody else holds is text on every page, and in what comes live.
func TestTheConsoleShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	const markup = `<xss-here a="1">'"><script>alert(1)</script>`
	s, base, key, _ := console(t)
	s.OK("endpoint", "create", "good", "--name", markup)
	s.OK("endpoint", "create", "bad", "--workers-max", "0")
	good := s.Start("worker", "good", "--", "sh", "-c", `cat >/dev/null; echo '"<xss-here chunk>"'; echo '{"<xss-here>":"<script>alert(1)</script>"}'`)
	good.Line(program.WorkerReady)
	bad := s.Start("worker", "bad", "--", "sh", "-c", `cat >/dev/null; echo "<xss-here error='1'><script>alert(1)</script>" >&2; exit 3`)
	bad.Line(program.WorkerReady)
	input := `{"input":{"text":"<xss-here a=\"1\">'\"><script>alert(1)</script>","<xss-here>":1},"webhook":"https://receiver.invalid/%3Cxss-here%3E?q=<xss-here>"}`
	var done, failed struct{ ID, Status string }
	program.Decode(t, s.OK("run", "good", input, "--wait", "-o", "json"), &done)
	_, out, _ := s.Run("run", "bad", input, "--wait", "-o", "json")
	program.Decode(t, out, &failed)
	if done.Status != "COMPLETED" || failed.Status != "FAILED" {
		t.Fatalf("got %v and %v, want one of each", done, failed)
	}
	b := newBrowser(t, base)
	b.signIn(key)
	pages := []string{
		"/ui/", "/ui/e/good", "/ui/e/bad", "/ui/e/good/settings", "/ui/e/good/purge", "/ui/e/good/try", "/ui/e/good/try?mode=chat", "/ui/e/good/try?job=" + done.ID,
		"/ui/e/good/jobs", "/ui/e/bad/jobs", "/ui/e/good/jobs/" + done.ID, "/ui/e/bad/jobs/" + failed.ID, "/ui/e/good/jobs/" + done.ID + "/output", "/ui/e/good/jobs/" + done.ID + "/log", "/ui/e/bad/jobs/" + failed.ID + "/input", "/ui/e/good/jobs/" + done.ID + "/input",
		"/ui/e/good/scaling", "/ui/e/bad/webhooks", "/ui/failures", "/ui/workers", "/ui/events", "/ui/system", "/ui/machines",
	}
	reflected := url.QueryEscape(markup)
	for _, page := range []string{
		"/ui/system?stream=", "/ui/system?q=", "/ui/e/good/jobs?q=", "/ui/e/good/jobs?worker=", "/ui/e/good/jobs?fingerprint=", "/ui/e/good/jobs?since=", "/ui/e/good/jobs?status=", "/ui/e/good/many?do=", "/ui/e/good/many?do=cancel&id=",
		"/ui/sign-in?next=", "/ui/sign-in?once=", "/ui/j/", "/ui/e/", "/ui/?after=",
	} {
		pages = append(pages, page+reflected)
	}
	for _, page := range pages {
		if got := b.ask(page, nil); strings.Contains(got.text, "<xss-here") || strings.Contains(got.text, "<script>alert") {
			t.Errorf("%s has markup of somebody else", page)
		}
	}
	if !strings.Contains(b.ask("/ui/e/bad/jobs/"+failed.ID, nil).text, "&lt;xss-here") {
		t.Error("the error is not shown at all")
	}
	if !strings.Contains(b.ask("/ui/e/bad/jobs/"+failed.ID+"/input", nil).text, "xss-here a=") {
		t.Error("the input is not shown at all")
	}
	live(t, b, "/ui/e/bad/jobs/"+failed.ID)
}

// open is the connection of an open page, on which its fragments come.
func (b *browser) open(ctx context.Context, page string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/ui/live?topics="+url.QueryEscape(page), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// live reads the first fragments of an open page.
func live(t *testing.T, b *browser, page string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp := b.open(ctx, page)
	defer resp.Body.Close()
	var text strings.Builder
	for part := make([]byte, 4096); !strings.Contains(text.String(), "job-head"); {
		n, err := resp.Body.Read(part)
		if err != nil {
			t.Fatalf("%v after %s", err, text.String())
		}
		text.Write(part[:n])
	}
	if strings.Contains(text.String(), "<xss-here") {
		t.Error("a fragment has markup of somebody else")
	}
}

// The console runs in a process of its own, with a user of NATS that may keep sessions and
// actions, and say that the process is there, and nothing else.
func TestTheConsoleServesWithItsOwnUser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	g := newGuarded(t)
	front, _ := g.serve()
	g.OK("endpoint", "create", "seen", "--workers-max", "0")
	if code, _, said := g.Run("serve", "console"); code != 2 || !strings.Contains(said, "--console-api-url") {
		t.Errorf("without an address: got %d, %s, want a usage error", code, said)
	}
	g.as(streams.RoleConsole)
	d := g.Start("serve", "console", "--console-api-url", front, "--console-host", "console.example", "--console-secure-cookies", "--listen", "127.0.0.1:0")
	base := d.Line(program.Ready)
	b := newBrowser(t, base)
	if got := b.ask("/ui/sign-in", nil, "Host", "console.example"); got.StatusCode != http.StatusOK {
		t.Errorf("by its name: got %d", got.StatusCode)
	}
	got := b.ask("/ui/sign-in", url.Values{"key": {g.secret("control", "api-key")}})
	if got.StatusCode != http.StatusSeeOther || len(got.Cookies()) != 1 || !got.Cookies()[0].Secure {
		t.Fatalf("sign in: got %d with %v, want a cookie for TLS only", got.StatusCode, got.Cookies())
	}
	// The client is on plain HTTP, as behind a proxy, and keeps such a cookie to itself.
	page := b.ask("/ui/", nil, "Cookie", got.Cookies()[0].Name+"="+got.Cookies()[0].Value)
	if page.StatusCode != http.StatusOK || !strings.Contains(page.text, "seen") {
		t.Errorf("the overview: got %d without the endpoint", page.StatusCode)
	}
	cookie := []string{"Cookie", got.Cookies()[0].Name + "=" + got.Cookies()[0].Value}
	id := program.Submit(g.Env, "seen")
	question := b.ask("/ui/e/seen/many?do=cancel&id="+id, nil, cookie...)
	token := csrfField.FindStringSubmatch(question.text)
	if token == nil {
		t.Fatalf("the question before an action: got %d, %s", question.StatusCode, question.text)
	}
	action := b.ask("/ui/e/seen/many", url.Values{"do": {"cancel"}, "id": {id}, "csrf": {token[1]}}, cookie...)
	testenv.Eventually(t, "the end of an action on many jobs", func() bool {
		return strings.Contains(b.ask(action.Header.Get("Location"), nil, cookie...).text, "Done: 1 of 1")
	})
	testenv.Eventually(t, "the console is among the processes", func() bool {
		page := b.ask("/ui/system", nil, "Cookie", got.Cookies()[0].Name+"="+got.Cookies()[0].Value)
		return page.StatusCode == http.StatusOK && strings.Contains(page.text, ">console<")
	})
}
