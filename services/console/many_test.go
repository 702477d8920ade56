package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
)

// jobsAPI has the jobs of an endpoint, the newest last, and lists them as /requests does.
type jobsAPI struct {
	mu    sync.Mutex
	jobs  []api.ListedJob
	acted []job.ID
}

// add adds a job in front.
func (a *jobsAPI) add(id string, status job.Status, submitted time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs = append(a.jobs, api.ListedJob{ID: job.ID(id), Status: status, SubmittedAt: web.FormatTime(submitted)})
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
	v := &visit{ctx: t.Context(), s: s, api: apiOf(t, a.ServeHTTP), apiKey: anAPIKey, params: map[string]string{"endpoint": "ep"}}
	for _, text := range []string{"read:*", "submit:*"} {
		scope, err := registry.ParseScope(text)
		if err != nil {
			t.Fatal(err)
		}
		v.scopes = append(v.scopes, scope)
	}
	return v
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
			v := manyVisit(t, a)
			v.query = tc.query
			data, err := tc.load(v)
			if err != nil {
				t.Fatal(err)
			}
			question := renderedBy(t, tc.template, v, data)
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

// More jobs than an action takes are said to be more, also if they are all on its last page.
func TestTheQuestionSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	for jobs, more := range map[int]bool{9_960: false, 10_020: true, 10_080: true} { // 60 of a page of 100
		a := &jobsAPI{}
		for i := range jobs / 60 * 100 {
			a.add(fmt.Sprintf("job-%t-%05d", i%100 < 60, i), job.Failed, time.Unix(1000, 0))
		}
		got, err := takenBy(&visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP)}, "ep", "retry", jobsFilter{Text: "true"})
		if err != nil || len(got.Jobs) != min(jobs, maxMany) || got.More != more {
			t.Errorf("%d jobs: got %d, more %v, %v", jobs, len(got.Jobs), got.More, err)
		}
	}
}
