package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// jobsAPI has the jobs of an endpoint, the newest last, and lists them as /requests does.
type jobsAPI struct {
	mu    sync.Mutex
	jobs  []api.ListedJob
	acted []job.ID
	// refuses, from the next request on, counts the lists that are refused; after is how many are
	// answered before.
	after, refuses int
}

// add adds a job in front.
func (a *jobsAPI) add(id string, status job.Status, submitted time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs = append(a.jobs, api.ListedJob{ID: job.ID(id), Status: status, SubmittedAt: api.FormatTime(submitted)})
}

func (a *jobsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	query := r.URL.Query()
	if r.Method == http.MethodPost { // cancel or retry
		id := job.ID(path.Base(r.URL.Path))
		a.acted = append(a.acted, id)
		_ = json.NewEncoder(w).Encode(api.ListedJob{ID: id, Status: job.InQueue})
		return
	}
	if a.after--; a.after < 0 && a.refuses > 0 {
		a.refuses--
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":"too many requests","code":"too_many_requests"}`)
		return
	}
	at := len(a.jobs)
	if cursor := query.Get("cursor"); cursor != "" {
		at, _ = strconv.Atoi(cursor)
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	page := api.RequestsPage{Requests: []api.ListedJob{}, Limit: limit}
	for ; at > 0; at-- {
		j := a.jobs[at-1]
		if to := query.Get("to"); to != "" && j.SubmittedAt >= to || query.Get("status") != "" && !slices.Contains(strings.Split(query.Get("status"), ","), string(j.Status)) {
			continue
		}
		if page.HasMore = len(page.Requests) == limit; page.HasMore {
			page.Cursor = strconv.Itoa(at)
			break
		}
		page.Requests = append(page.Requests, j)
	}
	_ = json.NewEncoder(w).Encode(page)
}

// manyVisit is a visit of a console that runs, whose API has these jobs.
func manyVisit(t *testing.T, a *jobsAPI) *visit {
	t.Helper()
	s, err := New(Config{}, Deps{Sessions: &registry.Sessions{}, Actions: newActions(t), Connect: func(string) (API, error) { return API{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, s.Run)
	return &visit{
		ctx: t.Context(), s: s, api: apiOf(t, a.ServeHTTP, client.WithPatience(0)), apiKey: anAPIKey, params: map[string]string{"endpoint": "ep"},
		scopes: scopesOf(t, "read:*", "submit:*"),
	}
}

// confirmed sends the form of a question and waits until its action is over.
func confirmed(t *testing.T, v *visit, question string) *registry.Action {
	t.Helper()
	v.form = fieldsOf(question)
	next, err := doMany(v)
	if err != nil {
		t.Fatal(err)
	}
	var a *registry.Action
	testenv.Eventually(t, "the action is over", func() bool {
		a, err = v.s.deps.Actions.Find(t.Context(), anAPIKey, path.Base(next))
		return err == nil && a.Over()
	})
	return a
}

// An action takes the jobs that its question counted, and none that came since.
func TestWhatIsConfirmedIsWhatIsDone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		template string
		load     func(*visit) (any, error)
		query    url.Values
		want     []job.ID // are counted, of those there are
	}{
		{"many", loadMany, url.Values{"do": {"retry"}, "all": {"1"}}, []job.ID{"timed-out", "failed"}},
		{"many", loadMany, url.Values{"do": {"retry"}, "all": {"1"}, "status": {"FAILED,COMPLETED"}}, []job.ID{"failed"}},
		{"many", loadMany, url.Values{"do": {"cancel"}, "all": {"1"}}, []job.ID{"runs", "waits"}},
		{"many", loadMany, url.Values{"do": {"cancel"}, "id": {"waits"}}, []job.ID{"waits"}},
		{"redrive", loadRedrive, url.Values{"endpoint": {"ep"}, "fingerprint": {"0123456789abcdef"}}, []job.ID{"failed"}},
	} {
		t.Run(tc.template+" "+tc.query.Encode(), func(t *testing.T) {
			t.Parallel()
			a := &jobsAPI{}
			statuses := map[string]job.Status{"waits": job.InQueue, "runs": job.InProgress, "failed": job.Failed, "timed-out": job.TimedOut, "completed": job.Completed}
			for _, id := range []string{"waits", "runs", "failed", "timed-out", "completed"} {
				a.add(id, statuses[id], time.Now().Add(-time.Minute))
			}
			v, question := asked(t, a, tc.template, tc.load, tc.query)
			for id, status := range statuses {
				a.add("later-"+id, status, time.Now().Add(time.Minute))
			}
			if got := confirmed(t, v, question); got.Done != len(tc.want) || got.Total != len(tc.want) {
				t.Errorf("got %+v, want %d done", got, len(tc.want))
			}
			slices.Sort(a.acted)
			slices.Sort(tc.want)
			if !slices.Equal(a.acted, tc.want) {
				t.Errorf("got %v acted on, want %v", a.acted, tc.want)
			}
		})
	}
}

// asked is a visit of a question, and its page.
func asked(t *testing.T, a *jobsAPI, template string, load func(*visit) (any, error), query url.Values) (*visit, string) {
	t.Helper()
	v := manyVisit(t, a)
	v.query = query
	data, err := load(v)
	if err != nil {
		t.Fatal(err)
	}
	return v, renderedBy(t, template, v, data)
}

// Where the API does not list all jobs at once, the question counts those that it does, and the
// action lists the others: as many as there were when it was asked.
func TestAnActionListsWhatItsQuestionCouldNot(t *testing.T) {
	t.Parallel()
	const jobs = 250
	for _, tc := range []struct {
		template string
		load     func(*visit) (any, error)
		query    url.Values
		count    string
	}{
		{"many", loadMany, url.Values{"do": {"retry"}, "all": {"1"}, "since": {"1h"}}, "Retry at least 200 jobs?"},
		{"redrive", loadRedrive, url.Values{"endpoint": {"ep"}, "fingerprint": {"0123456789abcdef"}}, "Queue at least 200 jobs again?"},
	} {
		t.Run(tc.template, func(t *testing.T) {
			t.Parallel()
			a := &jobsAPI{after: 2, refuses: 2} // once the question's, once the action's first
			want := make([]job.ID, jobs)
			for i := range want {
				want[i] = job.ID(fmt.Sprintf("job-%03d", i))
				a.add(string(want[i]), job.Failed, time.Now().Add(-time.Minute))
			}
			v, question := asked(t, a, tc.template, tc.load, tc.query)
			if !strings.Contains(question, tc.count) {
				t.Errorf("got %s, want %q", question, tc.count)
			}
			a.add("later", job.Failed, time.Now().Add(time.Minute))
			if got := confirmed(t, v, question); got.Done != jobs || got.Total != jobs || a.refuses != 0 {
				t.Errorf("got %+v, want %d done after a refusal", got, jobs)
			}
			slices.Sort(a.acted)
			if !slices.Equal(a.acted, want) {
				t.Errorf("got %d acted on, want the %d that there were", len(a.acted), jobs)
			}
		})
	}
}

// A text within ids is looked for among 500 jobs, with half of the lists that the API answers, and
// once: the other half is for who looks further back. A list that is refused ends the look where
// it is.
func TestALookWithinIDsLeavesListsForOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answered int    // lists, before one is refused
		next     string // is the job behind those that were looked at; "" for an error
		left     int    // lists to be refused
	}{{5, "100", 1}, {2, "400", 0}, {0, "", 0}} {
		a := &jobsAPI{after: tc.answered, refuses: 1}
		for i := range 600 {
			a.add(fmt.Sprintf("job-%03d", i), job.Completed, time.Unix(1000, 0))
		}
		v := &visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP, client.WithPatience(0)), params: map[string]string{"endpoint": "ep"}, query: url.Values{"q": {"none"}}}
		data, err := loadJobs(v)
		switch d, ok := data.(*jobsData); {
		case !ok:
			t.Fatalf("got %T", data)
		case d.Next != tc.next || (err == nil) != (tc.next != "") || a.refuses != tc.left || !v.still:
			t.Errorf("%d lists answered: got %q next, %v, %d left, still %v", tc.answered, d.Next, err, a.refuses, v.still)
		}
	}
}

// A question that can count nothing is none.
func TestAQuestionWhoseFirstListIsRefused(t *testing.T) {
	t.Parallel()
	a := &jobsAPI{refuses: 1}
	v := &visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP, client.WithPatience(0)), params: map[string]string{"endpoint": "ep"}, query: url.Values{"do": {"retry"}, "all": {"1"}}}
	_, err := loadMany(v)
	if status, text := problem(err); status != http.StatusTooManyRequests || text != "too many requests" {
		t.Errorf("got %d %s, want what the API says", status, text)
	}
}

func TestAFilterAsOfAnInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ since, until, wantSince, wantUntil string }{
		{"", "", "", "2026-11-25T12:00:00.000Z"},
		{"1h", "10m", "2026-11-25T11:00:00.000Z", "2026-11-25T11:50:00.000Z"},
		{"2026-11-25T11:00:00Z", "2026-11-25T11:30:00Z", "2026-11-25T11:00:00Z", "2026-11-25T11:30:00Z"},
		{"", "2027-01-01T00:00:00Z", "", "2026-11-25T12:00:00.000Z"},
		{"yesterday", "today", "yesterday", "today"}, // the API refuses them
	} {
		got := jobsFilter{Since: tc.since, Until: tc.until}.asOf(now)
		if got.Since != tc.wantSince || got.Until != tc.wantUntil || got.asOf(now.Add(time.Hour)) != got {
			t.Errorf("%s to %s: got %s to %s, want %s to %s, also later", tc.since, tc.until, got.Since, got.Until, tc.wantSince, tc.wantUntil)
		}
	}
}

func TestAnActionOnAFilterThatItCannotTake(t *testing.T) {
	t.Parallel()
	v := manyVisit(t, &jobsAPI{})
	for form, want := range map[string]string{
		"do=retry&all=1&status=COMPLETED":               `status must have one of [FAILED TIMED_OUT], got "COMPLETED"`,
		"do=retry&all=1&q=" + strings.Repeat("x", 5000): "The filter is too long: it has 4.9 KiB of text.",
	} {
		v.form, _ = url.ParseQuery(form)
		if _, err := doMany(v); err == nil || err.Error() != want {
			t.Errorf("%.40s: got %v, want %s", form, err, want)
		}
	}
}

func TestAQuestionAboutNoJobs(t *testing.T) {
	t.Parallel()
	a := &jobsAPI{}
	a.add("completed", job.Completed, time.Unix(1000, 0))
	v := &visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP), params: map[string]string{"endpoint": "ep"}}
	for query, want := range map[string]string{"do=retry&all=1": "No job of the filter", "do=cancel&all=1&status=COMPLETED": "No job of the filter", "do=cancel": "No job is selected"} {
		v.query, _ = url.ParseQuery(query)
		data, err := loadMany(v)
		if err != nil {
			t.Fatal(err)
		}
		if page := renderedBy(t, "many", v, data); !strings.Contains(page, want) || strings.Contains(page, "<form") {
			t.Errorf("%s: got %s, want %q", query, page, want)
		}
	}
	for _, query := range []string{"do=drop&all=1", "do=retry&all=1&status=LOST"} {
		v.query, _ = url.ParseQuery(query)
		if _, err := loadMany(v); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%s: got %v, want what is allowed", query, err)
		}
	}
}

// inMemory answers requests without a connection, so that a test has a clock of its own.
type inMemory http.HandlerFunc

func (handle inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	handle(answer, r)
	return answer.Result(), r.Context().Err()
}

func (handle inMemory) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New("http://api", "key", client.WithHTTPClient(&http.Client{Transport: handle}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The question says that there are more jobs than an action takes, also if all of these are on the
// last page. A slow machine counts fewer within countTimeout; the clock here stands still.
func TestTheQuestionSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	for jobs, more := range map[int]bool{9_960: false, 10_020: true, 10_080: true} { // 60 of a page of 100
		a := &jobsAPI{}
		for i := range jobs / 60 * 100 {
			a.add(fmt.Sprintf("job-%t-%05d", i%100 < 60, i), job.Failed, time.Unix(1000, 0))
		}
		synctest.Test(t, func(t *testing.T) {
			got, err := listTaken(&visit{ctx: t.Context(), api: inMemory(a.ServeHTTP).client(t)}, "ep", "retry", jobsFilter{Text: "true"})
			if err != nil || len(got.Jobs) != min(jobs, maxMany) || got.More != more {
				t.Errorf("%d jobs: got %d, more %v, %v", jobs, len(got.Jobs), got.More, err)
			}
		})
	}
}
