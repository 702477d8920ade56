package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

const (
	// maxRedrive bounds the jobs of one redrive; another one takes the rest.
	maxRedrive = maxMany
	// redrivePage is how many jobs are listed at a time.
	redrivePage = 100
)

// failureSpans are the times that the filter offers, the first one unless the URL has another.
var failureSpans = []struct {
	choice
	length time.Duration
}{
	{choice{"24h", "last 24 hours"}, 24 * time.Hour},
	{choice{"1h", "last hour"}, time.Hour},
	{choice{"7d", "last 7 days"}, 7 * 24 * time.Hour},
}

type failuresData struct {
	Endpoint, Text, Span string
	Spans                []choice
	Groups               []client.FailureGroup
	Total                int64
	Filtered             bool
}

func loadFailures(v *visit) (any, error) {
	d := &failuresData{Endpoint: v.query.Get("endpoint"), Text: v.query.Get("q"), Span: failureSpans[0].Value}
	length := failureSpans[0].length
	for _, s := range failureSpans {
		d.Spans = append(d.Spans, s.choice)
		if v.query.Get("span") == s.Value {
			d.Span, length = s.Value, s.length
		}
	}
	groups, err := v.api.Failures(v.ctx, d.Endpoint, time.Now().Add(-length), time.Time{})
	if err != nil {
		return nil, err
	}
	v.follow(d.Endpoint)
	d.Filtered = d.Endpoint != "" || d.Text != ""
	wanted := strings.ToLower(d.Text)
	for _, g := range groups {
		if strings.Contains(strings.ToLower(g.Error), wanted) {
			d.Groups = append(d.Groups, g)
			d.Total += g.Count
		}
	}
	return d, nil
}

// redriveData is the question before a redrive.
type redriveData struct {
	Endpoint, Fingerprint, Error string
	Jobs                         int
	// More: there are at least that many.
	More bool
}

func loadRedrive(v *visit) (any, error) {
	d := &redriveData{Endpoint: v.query.Get("endpoint"), Fingerprint: v.query.Get("fingerprint")}
	if !v.May("submit", d.Endpoint) || !v.May("read", d.Endpoint) {
		return nil, &pageError{status: http.StatusForbidden, text: "This key may not queue jobs of the endpoint again; it needs the scopes submit and read."}
	}
	jobs, more, err := failedJobs(v.ctx, v.api, d.Endpoint, d.Fingerprint)
	if err != nil {
		return nil, err
	}
	d.Jobs, d.More = len(jobs), more
	if len(jobs) > 0 {
		d.Error = jobs[0].Error
	}
	return d, nil
}

// failedJobs lists the jobs of an endpoint that failed of a cause and can still be queued
// again, at most maxRedrive; more says that there are others.
func failedJobs(ctx context.Context, api *client.Client, endpoint, fingerprint string) (jobs []client.ListedJob, more bool, err error) {
	o := client.RequestsOptions{Statuses: []job.Status{job.Failed}, Fingerprint: fingerprint, Limit: redrivePage}
	for {
		page, err := api.Requests(ctx, endpoint, o)
		if err != nil {
			return nil, false, err
		}
		jobs = append(jobs, page.Requests...)
		if len(jobs) > maxRedrive || len(jobs) == maxRedrive && page.Cursor != "" {
			return jobs[:maxRedrive], true, nil
		}
		if page.Cursor == "" {
			return jobs, false, nil
		}
		o.Cursor = page.Cursor
	}
}

// redrive begins to queue all jobs of a group again, and goes on to its progress.
func redrive(v *visit) (string, error) {
	endpoint, fingerprint := v.form.Get("endpoint"), v.form.Get("fingerprint")
	jobs, _, err := failedJobs(v.ctx, v.api, endpoint, fingerprint)
	if err != nil {
		return "", err
	}
	ids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return v.begin(endpoint, "retry", ids)
}
