package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"flightline/e2e/site"
	"flightline/services/conform"
)

// breach is one thing that is wrong with a server, and the scenario that has
// to notice.
type breach struct {
	noticed string
	what    string
	// request changes what the server gets, answer what it says; nil for none.
	request func(r *http.Request, body string) string
	answer  func(a *altered)
}

// altered is an answer on its way.
type altered struct {
	method, path string // of the request, with its query
	sent         string // body of the request
	status       int
	header       http.Header
	body         string
}

// swapped puts one text for another into the answers at addresses that hold at.
func swapped(at, pattern, with string) func(*altered) {
	find := regexp.MustCompile(pattern)
	return func(a *altered) {
		if strings.Contains(a.path, at) {
			a.body = find.ReplaceAllString(a.body, with)
		}
	}
}

// statused puts one HTTP status for another.
func statused(at string, from, to int) func(*altered) {
	return func(a *altered) {
		if strings.Contains(a.path, at) && a.status == from {
			a.status = to
		}
	}
}

// sentAs puts one text for another into requests.
func sentAs(pattern, with string) func(*http.Request, string) string {
	find := regexp.MustCompile(pattern)
	return func(r *http.Request, body string) string {
		r.URL.RawQuery = find.ReplaceAllString(r.URL.RawQuery, with)
		return find.ReplaceAllString(body, with)
	}
}

// broken is a server in front of another one that has the breach.
func broken(t *testing.T, behind string, d breach) string {
	t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 16}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return // the client has left
		}
		a := altered{method: in.Method, path: in.URL.String(), sent: string(body)}
		req := in.Clone(in.Context())
		req.Header.Del("Content-Length")
		if d.request != nil {
			body = []byte(d.request(req, string(body)))
		}
		if err := forward(in.Context(), pool, behind, req, body, &a); err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		if d.answer != nil {
			d.answer(&a)
		}
		for name := range a.header {
			if name != "Content-Length" && name != "Connection" {
				out.Header().Set(name, a.header.Get(name))
			}
		}
		out.WriteHeader(a.status)
		_, _ = io.WriteString(out, a.body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		pool.CloseIdleConnections()
	})
	return server.URL
}

func forward(ctx context.Context, pool http.RoundTripper, behind string, in *http.Request, body []byte, a *altered) error {
	req, err := http.NewRequestWithContext(ctx, in.Method, behind+in.URL.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = in.Header
	resp, err := pool.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a.status, a.header, a.body = resp.StatusCode, resp.Header, string(raw)
	return err
}

// conformBreaches is the test that the scenarios can fail: each has at least
// one breach that it notices.
func conformBreaches(t *testing.T, _ *site.Site, behind string) {
	t.Helper()
	all := breaches(t)
	noticing := map[string]bool{
		"forgotten": true, // takes minutes; made like ttl-completed
	}
	next := make(chan breach)
	var wg sync.WaitGroup
	var missed atomic.Int64
	for range 16 {
		wg.Go(func() {
			for d := range next {
				t.Run(d.noticed+": "+d.what, func(t *testing.T) {
					if notices(t, broken(t, behind, d), d.noticed); t.Failed() {
						missed.Add(1)
					}
				})
			}
		})
	}
	for _, d := range all {
		noticing[d.noticed] = true
		next <- d
	}
	close(next)
	wg.Wait()
	for _, s := range conform.Scenarios() {
		if !noticing[s.Name] {
			t.Errorf("%s: no breach shows that it can fail", s.Name)
		}
	}
	t.Logf("%d breaches, %d missed", len(all), missed.Load())
}

// notices wants the scenario to fail.
func notices(t *testing.T, url, scenario string) {
	t.Helper()
	report, err := conform.Run(t.Context(), conform.Config{BaseURL: url, Key: contractKey, Make: true, Rates: true, Only: []string{scenario}, Together: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Scenarios) != 1 || report.Failed != 1 {
		t.Fatalf("got %+v, want %s to fail", report.Scenarios, scenario)
	}
	detail := report.Scenarios[0].Detail
	for _, other := range []string{"deadline", "EOF", "connection", "Bad Gateway"} {
		if strings.Contains(detail, other) {
			t.Errorf("got %q, want it to be what is wrong and not the connection", detail)
		}
	}
	t.Log(detail)
}

// relay is a server through which webhooks go, each so many times and changed.
func relay(t *testing.T, times int, change *strings.Replacer) func(*http.Request, string) string {
	t.Helper()
	var to sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		target, known := to.Load(in.URL.Path)
		for range times {
			if err != nil || !known {
				break
			}
			resp, err := http.Post(target.(string), "application/json", strings.NewReader(change.Replace(string(body))))
			if err != nil {
				break
			}
			_ = resp.Body.Close()
		}
		out.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(server.Close)
	find, n := regexp.MustCompile(`"webhook":"([^"]*)"`), new(atomic.Int64)
	return func(_ *http.Request, body string) string {
		found := find.FindStringSubmatch(body)
		if found == nil {
			return body
		}
		path := fmt.Sprintf("/%d", n.Add(1))
		to.Store(path, found[1])
		return strings.Replace(body, found[0], fmt.Sprintf(`"webhook":"%s%s"`, server.URL, path), 1)
	}
}
