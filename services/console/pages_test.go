package console

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	"flightline/shared/job"
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
