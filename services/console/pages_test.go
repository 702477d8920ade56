package console

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/stats"
)

// follow loads a screen as a click on a page's link of this text does, and returns its page.
func follow(t *testing.T, v *visit, page, text, template string, load func(*visit) (any, error)) (any, string) {
	t.Helper()
	found := regexp.MustCompile(`<a href="([^"]*)"[^>]*>` + text + `</a>`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no link %q in %s", text, page)
	}
	u, err := url.Parse(html.UnescapeString(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	v.query = u.Query()
	data, err := load(v)
	if err != nil {
		t.Fatalf("%s: %v", u, err)
	}
	return data, renderedBy(t, template, v, data)
}

// The links of the list of jobs lead to its next page and to its statuses, with the filter in them.
func TestTheLinksOfTheListOfJobs(t *testing.T) {
	t.Parallel()
	a := &jobsAPI{}
	for i := range 120 {
		a.add(fmt.Sprintf("job-%03d", i), []job.Status{job.Completed, job.Failed}[i%2], time.Now())
	}
	v := &visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP), params: map[string]string{"endpoint": "ep"}, scopes: scopesOf(t, "read:*")}
	page := `<a href="?since=24h">first</a>`
	newest := len(a.jobs)
	for _, tc := range []struct {
		text, status string
		shown        int // jobs
		from         int // the first one's place
		paged        bool
	}{
		{"first", "", 50, newest, false},
		{"Older", "", 50, newest - 50, true},
		{"Older", "", 20, newest - 100, true},
		{"Newest", "", 50, newest, false},
		{"Failed", "FAILED", 50, newest, false},
		{"Older", "FAILED", 10, newest - 100, true},
	} {
		var data any
		data, page = follow(t, v, page, tc.text, "jobs", loadJobs)
		d, ok := data.(*jobsData)
		if !ok || len(d.Jobs) != tc.shown || d.Jobs[0].ID != a.jobs[tc.from-1].ID || v.query.Get("status") != tc.status || v.query.Get("since") != "24h" || v.query.Has("cursor") != tc.paged {
			t.Errorf("%s: got %d jobs of %v, want %d from job %d on", tc.text, len(d.Jobs), v.query, tc.shown, tc.from)
		}
	}
}

// The link to the next page of workers has a cursor that the API takes.
func TestTheNextPageOfWorkers(t *testing.T) {
	t.Parallel()
	var cursors []string
	v := &visit{ctx: t.Context(), scopes: scopesOf(t, "read:*"), api: apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		cursors = append(cursors, r.URL.Query().Get("cursor"))
		_, _ = io.WriteString(w, `{"workers":[{"id":"w1","endpoint":"ep","state":"idle"}],"cursor":"ep/w1"}`)
	})}
	_, page := follow(t, v, `<a href="/ui/workers?state=idle">Workers</a>`, "Workers", "workers", loadWorkers)
	if follow(t, v, page, "Next page", "workers", loadWorkers); !slices.Equal(cursors, []string{"", "ep/w1"}) || v.query.Get("state") != "idle" {
		t.Errorf("got the cursors %q and the query %v, want that of the page before, and its state", cursors, v.query)
	}
}

// A page on which nothing matches leads to the next one, as long as there is one.
func TestAnEmptyPageLeadsToTheNext(t *testing.T) {
	t.Parallel()
	answers := map[string][2]string{ // the first page and the last one
		"/v1/endpoints/ep":                       {`{"id":"ep"}`, `{"id":"ep"}`},
		"/v1/endpoints/ep/webhooks/destinations": {`[]`, `[]`},
		"/v1/endpoints/ep/webhooks/deliveries":   {`{"deliveries":[],"hasMore":true,"cursor":"217"}`, `{"deliveries":[]}`},
		"/v1/workers":                            {`{"workers":[{"id":"w1","endpoint":"ep","state":"idle"}],"cursor":"ep/w1"}`, `{"workers":[]}`},
	}
	c := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.URL.Path][0]
		if r.URL.Query().Get("cursor") != "" {
			answer = answers[r.URL.Path][1]
		}
		_, _ = io.WriteString(w, answer)
	})
	for _, tc := range []struct {
		template, query, more, last string
		load                        func(*visit) (any, error)
	}{
		{"webhooks", "failed=true", "Look further back", "No delivery matches", loadWebhooks},
		{"webhooks", "failed=", "Look further back", "No webhook was sent", loadWebhooks},
		{"workers", "state=unhealthy", "Look further", "No worker matches", loadWorkers},
	} {
		v := &visit{ctx: t.Context(), api: c, control: c, params: map[string]string{"endpoint": "ep"}, scopes: scopesOf(t, "control", "read:*")}
		_, page := follow(t, v, `<a href="?`+tc.query+`">first</a>`, "first", tc.template, tc.load)
		_, page = follow(t, v, page, tc.more, tc.template, tc.load)
		if name, value, _ := strings.Cut(tc.query, "="); !strings.Contains(page, tc.last) || v.query.Get(name) != value {
			t.Errorf("%s, behind the first page: got %s of %v, want %s", tc.template, page, v.query, tc.last)
		}
	}
}

// The failures beyond the causes that are kept apart have no fingerprint to narrow a list by: they
// lead to all that failed.
func TestTheFailuresOfOtherCausesHaveALink(t *testing.T) {
	t.Parallel()
	d := &failuresData{Groups: []client.FailureGroup{{Endpoint: "ep", Fingerprint: "0123456789abcdef", Error: "one"}, {Endpoint: "ep", Fingerprint: stats.Other, Error: "others"}}}
	page := renderedBy(t, "failures", &visit{}, d)
	for _, want := range []string{`href="/ui/e/ep/jobs?fingerprint=0123456789abcdef">one</a>`, `href="/ui/e/ep/jobs?status=FAILED">others</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("got %s, want %s", page, want)
		}
	}
}
