package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
)

const (
	// maxMany bounds the jobs of one action.
	maxMany = registry.MaxActionJobs
	// manyPage is how many jobs are listed at a time for an action.
	manyPage = 100
	// countTimeout bounds how long a question counts jobs.
	countTimeout = 3 * time.Second
)

// kindsOfMany are the statuses of the jobs that an action takes.
var kindsOfMany = map[string][]job.Status{
	"cancel": {job.InQueue, job.InProgress}, "retry": {job.Failed, job.TimedOut},
}

// taken are the jobs that an action takes, the newest ones of a filter. A question counts them and
// its form sends their ids, so that what is done is what was confirmed.
type taken struct {
	Jobs []client.ListedJob
	// More: the filter has more than maxMany.
	More bool
	// AtLeast: the API did not list all of them in time. The form sends Rest, the filter as of
	// the question, and the action lists them.
	AtLeast bool
	Rest    jobsFilter
}

// Most is how many jobs an action takes at most.
func (taken) Most() int { return maxMany }

// manyData asks before something is done to many jobs.
type manyData struct {
	Endpoint, What string
	taken
	// All: the jobs are those of a filter.
	All  bool
	Back string
}

func errWhat() error {
	return &pageError{status: http.StatusBadRequest, text: "do must be cancel or retry"}
}

// loadMany counts the jobs of an action, for the question before it.
func loadMany(v *visit) (any, error) {
	f := filterOf(v.query)
	d := &manyData{Endpoint: v.param("endpoint"), What: v.query.Get("do"), All: v.query.Get("all") != ""}
	if kindsOfMany[d.What] == nil {
		return nil, errWhat()
	}
	d.Back = pathOf(d.Endpoint) + "/jobs?" + f.Query("-", "-")
	var err error
	if d.All {
		d.taken, err = listTaken(v, d.Endpoint, d.What, f)
		return d, err
	}
	for _, id := range v.query["id"] {
		d.Jobs = append(d.Jobs, client.ListedJob{Job: client.Job{ID: job.ID(id)}})
	}
	return d, nil
}

// listTaken lists the jobs of a filter that an action takes.
func listTaken(v *visit, endpoint, what string, f jobsFilter) (t taken, err error) {
	if _, err := f.options(manyPage, time.Now()); err != nil {
		return t, err
	}
	f, ok := f.takenBy(what)
	if !ok {
		return t, nil
	}
	t.Rest = f.asOf(time.Now())
	l, err := newJobLister(v.api, endpoint, f, manyPage)
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(v.ctx, countTimeout)
	defer cancel()
	for !l.over && len(t.Jobs) <= maxMany {
		page, err := l.next(ctx)
		if _, busy := isBusy(err); err != nil && l.options.Cursor != "" && (busy || ctx.Err() != nil) {
			t.AtLeast = true
			return t, nil
		}
		if err != nil {
			return t, err
		}
		t.Jobs = append(t.Jobs, page...)
	}
	t.More = len(t.Jobs) > maxMany
	t.Jobs = t.Jobs[:min(len(t.Jobs), maxMany)]
	return t, nil
}

// asOf is the filter with its times as instants, none of them after now: what is queued or ends
// later is not in it.
func (f jobsFilter) asOf(now time.Time) jobsFilter {
	for _, at := range []*string{&f.Since, &f.Until} {
		if ago, err := time.ParseDuration(*at); err == nil {
			*at = api.FormatTime(now.Add(-ago))
		}
	}
	if until, err := time.Parse(time.RFC3339, f.Until); f.Until == "" || err == nil && until.After(now) {
		f.Until = api.FormatTime(now)
	}
	return f
}

// takenBy is the filter with the statuses that an action takes. ok is false if it has none.
func (f jobsFilter) takenBy(what string) (_ jobsFilter, ok bool) {
	var statuses []string
	for _, status := range kindsOfMany[what] {
		if f.Status == "" || slices.Contains(strings.Split(f.Status, ","), string(status)) {
			statuses = append(statuses, string(status))
		}
	}
	f.Status, f.Cursor = strings.Join(statuses, ","), ""
	return f, len(statuses) > 0
}

// doMany begins the action and leads to its progress.
func doMany(v *visit) (string, error) {
	endpoint, what := v.param("endpoint"), v.form.Get("do")
	if kindsOfMany[what] == nil {
		return "", errWhat()
	}
	if v.form.Get("all") != "" {
		f, ok := filterOf(v.form).takenBy(what)
		if !ok {
			return "", &pageError{status: http.StatusBadRequest, text: fmt.Sprintf("status must have one of %v, got %q", kindsOfMany[what], v.form.Get("status"))}
		}
		return v.begin(endpoint, what, nil, f.asOf(time.Now()).Query("-", ""))
	}
	var jobs []job.ID
	for _, id := range v.form["id"] {
		jobs = append(jobs, job.ID(id))
	}
	return v.begin(endpoint, what, jobs, "")
}
