package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

const (
	// jobsPage is how many jobs a page of the list has, maxPages how many pages of the API
	// are read to fill it where a filter leaves most out: half of those that it answers in 10 s.
	// They have withinPage jobs where a text is looked for within ids.
	jobsPage, maxPages, withinPage = 50, 5, 100
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

// Link is the query as a link: within one, a template would escape what is between its values.
func (f jobsFilter) Link(status, cursor string) string { return "?" + f.Query(status, cursor) }

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
	Statuses []choice
	Spans    []choice
	// Acts: the key may cancel and retry.
	Acts bool
	// Within: the text was looked for within the newest ids, not at the place of a time.
	Within bool
}

// choice is one of the values that a filter takes.
type choice struct{ Value, Title string }

func statusChoices() []choice {
	return []choice{
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
		Spans: []choice{{"", "any time"}, {"15m", "15 minutes"}, {"1h", "1 hour"}, {"24h", "1 day"}, {"168h", "1 week"}},
	}
	d.Acts = v.May("submit", d.Endpoint)
	v.follow(d.Endpoint)
	limit := jobsPage
	if d.Within = d.Filter.Text != "" && !d.Filter.BeginsID(time.Now()); d.Within {
		v.still, limit = true, withinPage // else it takes all lists that the API answers
	}
	var err error
	d.Jobs, d.Next, err = listJobs(v, d.Endpoint, d.Filter, limit)
	return d, err
}

// listJobs reads pages of the API, of limit jobs, until it has as many as a page shows, or read
// maxPages, or the API refuses one for now.
func listJobs(v *visit, endpoint string, f jobsFilter, limit int) (jobs []client.ListedJob, next string, err error) {
	l, err := newJobLister(v.api, endpoint, f, limit)
	for range maxPages {
		if err != nil || l.over || len(jobs) >= jobsPage {
			break
		}
		var page []client.ListedJob
		page, err = l.next(v.ctx)
		if _, busy := isBusy(err); busy && l.options.Cursor != f.Cursor {
			return jobs, l.options.Cursor, nil
		}
		jobs = append(jobs, page...)
	}
	return jobs, l.options.Cursor, err
}

// jobLister reads the jobs of a filter, a page of the API at a time.
type jobLister struct {
	api      *client.Client
	endpoint string
	options  client.RequestsOptions
	within   string // what ids have in them, "" for any
	over     bool   // the last page was read
}

// newJobLister begins at the filter's cursor.
func newJobLister(api *client.Client, endpoint string, f jobsFilter, limit int) (*jobLister, error) {
	o, err := f.options(limit, time.Now())
	l := &jobLister{api: api, endpoint: endpoint, options: o}
	if o.ID == "" {
		l.within = f.Text
	}
	return l, err
}

// next returns the jobs of the next page. After an error it may be called again.
func (l *jobLister) next(ctx context.Context) (jobs []client.ListedJob, err error) {
	page, err := l.api.Requests(ctx, l.endpoint, l.options)
	if err != nil {
		return nil, err
	}
	for _, j := range page.Requests {
		if strings.Contains(string(j.ID), l.within) {
			jobs = append(jobs, j)
		}
	}
	l.options.Cursor, l.over = page.Cursor, page.Cursor == ""
	return jobs, nil
}

// findJob leads to a job whose endpoint is not known.
func findJob(v *visit) (any, error) {
	found, err := v.api.FindJob(v.ctx, job.ID(v.param("id")))
	if err != nil {
		return nil, err
	}
	return nil, &redirect{jobPath(found.Endpoint, string(found.ID))}
}

// jobPath is the page of a job.
func jobPath(endpoint, id string) string {
	return pathOf(endpoint) + "/jobs/" + url.PathEscape(id)
}

// doJob cancels or retries one job and goes back to it, or to the playground with a key that
// may not read it.
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
		if !v.May("read", endpoint) {
			return pathOf(endpoint) + "/try", nil
		}
		return jobPath(endpoint, id), nil
	}
}
