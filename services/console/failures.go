package console

import (
	"net/http"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
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
	Endpoint, Error string
	taken
}

func loadRedrive(v *visit) (any, error) {
	d := &redriveData{Endpoint: v.query.Get("endpoint")}
	if !v.May("submit", d.Endpoint) || !v.May("read", d.Endpoint) {
		return nil, &pageError{status: http.StatusForbidden, text: "This key may not queue jobs of the endpoint again; it needs the scopes submit and read."}
	}
	var err error
	d.taken, err = listTaken(v, d.Endpoint, "retry", jobsFilter{Status: string(job.Failed), Fingerprint: v.query.Get("fingerprint")})
	if len(d.Jobs) > 0 {
		d.Error = d.Jobs[0].Error
	}
	return d, err
}
