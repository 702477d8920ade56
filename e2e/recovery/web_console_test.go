package recovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

// replicas are consoles behind a balancer that sends each request to the next one.
type replicas struct {
	t    *testing.T
	url  string // of the balancer
	http *http.Client
	all  []*program.Process
	urls []string // of each
	// killed is how many of them, from the first on, are no longer asked.
	killed atomic.Int64
}

func newReplicas(t *testing.T, h *haven, api string, n int) *replicas {
	t.Helper()
	r := &replicas{t: t}
	var targets []*url.URL
	for range n {
		d := h.Start("serve", "console", "--console-api-url", api)
		u, err := url.Parse(d.Line(program.Ready))
		if err != nil {
			t.Fatal(err)
		}
		r.all, r.urls, targets = append(r.all, d), append(r.urls, u.String()), append(targets, u)
	}
	var turn atomic.Int64
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		from := r.killed.Load()
		p.SetURL(targets[from+turn.Add(1)%(int64(n)-from)])
	}})
	t.Cleanup(front.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.url, r.http = front.URL, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r
}

// kill kills the first of those that are asked.
func (r *replicas) kill() { r.all[r.killed.Add(1)-1].Kill() }

// ask gets a page, or posts a form, and returns the page's text and where it leads.
func (r *replicas) ask(base, path string, form url.Values) (text, next string) {
	r.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		r.t.Fatalf("%s: got %d, %v: %s", path, resp.StatusCode, err, page)
	}
	return string(page), resp.Header.Get("Location")
}

var csrfToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// An action on many jobs is shown by each console, and goes on at another one when the console
// that worked on it is killed. No job is acted on twice.
func TestAnActionOutlivesItsConsole(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	h := newHaven(t, testenv.NewServer(t).Config(), "1")
	// So the action goes on for more than 10 s.
	h.Environ = append(h.Environ, `FLIGHTLINE_LIMITS={"retry":{"requests":60,"concurrent":20}}`)
	h.serve()
	h.OK("endpoint", "create", "fails", "--workers-max", "0")
	testenv.Background(t, func(ctx context.Context) error {
		return worker.Run(ctx, worker.Config{Endpoint: "fails", NATSURL: h.bus.URL, User: h.bus.User, Password: h.bus.Password, Concurrency: 8, Grace: -1},
			func(context.Context, *worker.Job) (any, error) { return nil, fmt.Errorf("no such model") })
	})
	const jobs = 100
	ids := make([]job.ID, jobs)
	for i := range ids {
		j, err := h.client.Run(t.Context(), "fails", client.Request{Input: map[string]int{"n": i}})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = j.ID
	}
	for _, id := range ids {
		if j, err := h.client.Wait(t.Context(), "fails", id); err != nil || j.Status != job.Failed {
			t.Fatalf("job %s: got %+v, %v, want it to fail", id, j, err)
		}
	}
	api := h.Environ[len(h.Environ)-1] // as serve says
	r := newReplicas(t, h, strings.TrimPrefix(api, "FLIGHTLINE_URL="), 2)
	r.ask(r.url, "/ui/sign-in", url.Values{"key": {program.AdminKey}})
	form := url.Values{"do": {"retry"}}
	for _, id := range ids {
		form.Add("id", string(id))
	}
	question, _ := r.ask(r.url, "/ui/e/fails/many?"+form.Encode(), nil)
	form.Set("csrf", csrfToken.FindStringSubmatch(question)[1])
	_, page := r.ask(r.urls[0], "/ui/e/fails/many", form)
	settled := regexp.MustCompile(`(\d+) of 100`)
	shown := func(word string) (text, done string) {
		text, _ = r.ask(r.url, page, nil)
		if found := settled.FindStringSubmatch(text); found != nil && strings.Contains(text, word+": ") {
			done = found[1]
		}
		return text, done
	}
	testenv.Eventually(t, "the action goes on", func() bool {
		_, done := shown("Working")
		return done != "" && done != "0"
	})
	for _, console := range r.urls {
		if text, _ := r.ask(console, page, nil); !strings.Contains(text, "Working: ") {
			t.Errorf("%s does not show the action", console)
		}
	}
	r.kill()
	var text string
	testenv.Eventually(t, "it is interrupted", func() bool {
		var done string
		text, done = shown("Interrupted")
		return done != ""
	})
	if !strings.Contains(text, page+"/continue") {
		t.Fatalf("got %s, want a button to continue", text)
	}
	r.ask(r.url, page+"/continue", url.Values{"csrf": {form.Get("csrf")}})
	r.ask(r.url, page+"/continue", url.Values{"csrf": {form.Get("csrf")}}) // a second click
	testenv.Within(t, time.Minute, "the end", func() bool {
		_, done := shown("Done")
		return done == "100"
	})
	for _, id := range ids {
		j, err := h.client.Wait(t.Context(), "fails", id)
		if err != nil || j.Status != job.Failed || j.Retries != 1 {
			t.Errorf("job %s: got %+v, %v, want two attempts", id, j, err)
		}
	}
}
