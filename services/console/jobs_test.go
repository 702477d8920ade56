package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
	"flightline/shared/web"
)

// jobsAPI has the jobs of an endpoint, the newest last, and lists them as /requests does.
type jobsAPI struct {
	mu    sync.Mutex
	jobs  []api.ListedJob
	lists int // how many were asked for
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
	a.lists++
	query := r.URL.Query()
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

// More jobs than an action takes are said to be more, also if they are all on its last page.
func TestTheQuestionSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	for jobs, more := range map[int]bool{9_960: false, 10_020: true, 10_080: true} { // 60 of a page of 100
		a := &jobsAPI{}
		for i := range jobs / 60 * 100 {
			a.add(fmt.Sprintf("job-%t-%05d", i%100 < 60, i), job.Failed, time.Unix(1000, 0))
		}
		ids, got, err := idsOf(&visit{ctx: t.Context(), api: apiOf(t, a.ServeHTTP)}, "ep", "retry", jobsFilter{Text: "true"})
		if err != nil || len(ids) != min(jobs, maxMany) || got != more {
			t.Errorf("%d jobs: got %d, more %v, %v", jobs, len(ids), got, err)
		}
	}
}
