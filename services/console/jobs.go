package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/registry"
)

const (
	// jobsPage is how many jobs a page of the list has, maxPages how many pages of the API
	// are read to fill it where a filter leaves most out.
	jobsPage, maxPages = 50, 10
	// clockSlack is how much the clock that made an id may be ahead of ours.
	clockSlack = time.Minute
)

// noIDBefore is before all ids: Flightline is younger.
var noIDBefore = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// jobsFilter is what the list of jobs is narrowed to; each is a parameter of the query.
type jobsFilter struct {
	Status, Worker, Fingerprint, Text, Since, Until, Cursor string
}

func filterOf(query url.Values) jobsFilter {
	return jobsFilter{
		Status: query.Get("status"), Worker: query.Get("worker"), Fingerprint: query.Get("fingerprint"),
		Text: strings.TrimSpace(query.Get("q")), Since: query.Get("since"), Until: query.Get("until"), Cursor: query.Get("cursor"),
	}
}

// Query is the filter's query; status and cursor replace the filter's own unless they are "-".
func (f jobsFilter) Query(status, cursor string) string {
	query := url.Values{}
	if status == "-" {
		status = f.Status
	}
	if cursor == "-" {
		cursor = f.Cursor
	}
	for name, value := range map[string]string{"status": status, "worker": f.Worker, "fingerprint": f.Fingerprint, "q": f.Text, "since": f.Since, "until": f.Until, "cursor": cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query.Encode()
}

// options are what the API can narrow the list by.
func (f jobsFilter) options(limit int, now time.Time) (client.RequestsOptions, error) {
	o := client.RequestsOptions{Worker: f.Worker, Fingerprint: f.Fingerprint, From: f.Since, To: f.Until, Limit: limit, Cursor: f.Cursor}
	if f.BeginsID(now) {
		o.ID = f.Text
	}
	for name := range strings.SplitSeq(f.Status, ",") {
		if status := job.Status(name); status.Valid() {
			o.Statuses = append(o.Statuses, status)
		} else if name != "" {
			return o, &pageError{status: http.StatusBadRequest, text: "status must be one or several of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, TIMED_OUT, CANCELLED, with commas between them"}
		}
	}
	return o, nil
}

// BeginsID reports whether the text is the beginning of ids that may exist by now, so that the
// API can seek them. Another text is looked for in the newest ids.
func (f jobsFilter) BeginsID(now time.Time) bool {
	from, to, ok := job.MadeWithin(f.Text)
	return ok && from.Before(now.Add(clockSlack)) && to.After(noIDBefore)
}

// jobsData is the list of jobs.
type jobsData struct {
	Endpoint string
	Filter   jobsFilter
	Jobs     []client.ListedJob
	Next     string
	Statuses []statusChoice
	Spans    []statusChoice
	// Acts: the key may cancel and retry.
	Acts bool
	// Within: the text was looked for within the newest ids, not at the place of a time.
	Within bool
}

type statusChoice struct{ Value, Title string }

func statusChoices() []statusChoice {
	return []statusChoice{
		{"", "All"},
		{string(job.InQueue), "Queued"},
		{string(job.InProgress), "Running"},
		{string(job.Completed), "Completed"},
		{string(job.Failed), "Failed"},
		{string(job.TimedOut), "Timed out"},
		{string(job.Cancelled), "Cancelled"},
	}
}

func loadJobs(v *visit) (any, error) {
	d := &jobsData{
		Endpoint: v.param("endpoint"), Filter: filterOf(v.query), Statuses: statusChoices(),
		Spans: []statusChoice{{"", "any time"}, {"15m", "15 minutes"}, {"1h", "1 hour"}, {"24h", "1 day"}, {"168h", "1 week"}},
	}
	d.Acts = v.May("submit", d.Endpoint)
	v.follow(d.Endpoint)
	d.Within = d.Filter.Text != "" && !d.Filter.BeginsID(time.Now())
	var err error
	d.Jobs, d.Next, err = listJobs(v, d.Endpoint, d.Filter, jobsPage)
	return d, err
}

// listJobs reads pages of the API until it has as many jobs as wanted, or read maxPages.
func listJobs(v *visit, endpoint string, f jobsFilter, want int) (jobs []client.ListedJob, next string, err error) {
	o, err := f.options(want, time.Now())
	if err != nil {
		return nil, "", err
	}
	for range maxPages {
		page, err := v.api.Requests(v.ctx, endpoint, o)
		if err != nil {
			return nil, "", err
		}
		for _, j := range page.Requests {
			if o.ID != "" || strings.Contains(string(j.ID), f.Text) {
				jobs = append(jobs, j)
			}
		}
		o.Cursor = page.Cursor
		if o.Cursor == "" || len(jobs) >= want {
			break
		}
	}
	return jobs, o.Cursor, nil
}

// findJob leads to a job whose endpoint is not known.
func findJob(v *visit) (any, error) {
	found, err := v.api.FindJob(v.ctx, job.ID(v.param("id")))
	if err != nil {
		return nil, err
	}
	return nil, &redirect{Root + "/e/" + url.PathEscape(found.Endpoint) + "/jobs/" + url.PathEscape(string(found.ID))}
}

// manyData asks before something is done to many jobs.
type manyData struct {
	Endpoint, What string
	IDs            []string
	Filter         jobsFilter
	// All: the jobs are those of the filter; More: there are more than the IDs.
	All, More bool
	Back      string
}

// maxMany bounds the jobs of one action.
const maxMany = registry.MaxActionJobs

// kindsOfMany are the statuses of the jobs that an action takes.
var kindsOfMany = map[string][]job.Status{
	"cancel": {job.InQueue, job.InProgress}, "retry": {job.Failed, job.TimedOut},
}

// loadMany counts the jobs of an action, for the question before it.
func loadMany(v *visit) (any, error) {
	d := &manyData{Endpoint: v.param("endpoint"), What: v.query.Get("do"), IDs: v.query["id"], Filter: filterOf(v.query), All: v.query.Get("all") != ""}
	if kindsOfMany[d.What] == nil {
		return nil, &pageError{status: http.StatusBadRequest, text: "do must be cancel or retry"}
	}
	d.Back = Root + "/e/" + url.PathEscape(d.Endpoint) + "/jobs?" + d.Filter.Query("-", "-")
	if !d.All {
		return d, nil
	}
	var err error
	d.IDs, d.More, err = idsOf(v, d.Endpoint, d.What, d.Filter)
	return d, err
}

// idsOf are the jobs of a filter that an action takes, at most maxMany.
func idsOf(v *visit, endpoint, what string, f jobsFilter) (ids []string, more bool, err error) {
	for f.Cursor = ""; ; {
		jobs, next, err := listJobs(v, endpoint, f, 100)
		if err != nil {
			return nil, false, err
		}
		for _, j := range jobs {
			if slices.Contains(kindsOfMany[what], j.Status) {
				ids = append(ids, string(j.ID))
			}
		}
		if len(ids) >= maxMany || next == "" {
			return ids[:min(len(ids), maxMany)], next != "" || len(ids) > maxMany, nil
		}
		f.Cursor = next
	}
}

// doMany begins the action and leads to its progress.
func doMany(v *visit) (string, error) {
	endpoint, what := v.param("endpoint"), v.form.Get("do")
	if kindsOfMany[what] == nil {
		return "", &pageError{status: http.StatusBadRequest, text: "do must be cancel or retry"}
	}
	ids := v.form["id"]
	if v.form.Get("all") != "" {
		var err error
		if ids, _, err = idsOf(v, endpoint, what, filterOf(v.form)); err != nil {
			return "", err
		}
	}
	jobs := make([]job.ID, len(ids))
	for i, id := range ids {
		jobs[i] = job.ID(id)
	}
	return v.begin(endpoint, what, jobs)
}

// doJob cancels or retries one job and goes back to it.
func doJob(what string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		endpoint, id := v.param("endpoint"), v.param("id")
		act := v.api.Cancel
		if what == "retry" {
			act = v.api.Retry
		}
		j, err := act(v.ctx, endpoint, job.ID(id))
		var refused *client.Error
		switch {
		case errors.As(err, &refused) && refused.Status == http.StatusBadRequest:
			v.notice("Not done: %s", refused.Message)
		case err != nil:
			return "", err
		default:
			v.notice("The job is %s.", j.Status)
		}
		return Root + "/e/" + url.PathEscape(endpoint) + "/jobs/" + url.PathEscape(id), nil
	}
}
