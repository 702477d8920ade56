package cli_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEventsArePrinted(t *testing.T) {
	const (
		raw = `{"id":"e1","type":"job.failed","subject":"j1","time":"2026-01-31T12:00:00.5Z","data":{"status":"FAILED","attempt":2,"run":3,"workerId":"w","error":"no\u001b[2J way\n"}}`
		all = "retry: 1000\nid: 0\n\nid: 7\nevent: job.failed\ndata: " + raw + "\n\nevent: end\ndata: {}\n\n"
	)
	server := api{
		"GET /v2/ep/events?follow=false":                                 {200, all},
		"GET /v2/ep/events/j1?follow=false&type=job.failed%2Cjob.queued": {200, all},
		"GET /v2/ep/events?follow=false&since=2026-01-31T12%3A00%3A00Z":  {200, all},
		"GET /v2/ep/events":                   {200, all}, // it follows, and gets the end all the same
		"GET /v2/ep/events/gone?follow=false": {404, `{"error":"no such job","code":"job_not_found"}`},
	}.start(t, nil)
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).Local().Format(time.RFC3339)
	table := "TIME                       TYPE           JOB                                        ATTEMPT  RUN  WORKER\n" +
		fmt.Sprintf("%-25s", at) + "  job.failed     j1                                               2    3  w  no[2J way \n"
	tests := map[string]struct {
		args []string
		want result
	}{
		"json":          {[]string{"-o", "json"}, result{out: raw + "\n"}},
		"table":         {nil, result{out: table}},
		"a job's types": {[]string{"j1", "--type", "failed,job.queued"}, result{out: table}},
		"since":         {[]string{"--since", "2026-01-31T12:00:00Z"}, result{out: table}},
		"from":          {[]string{"--from", "3"}, result{out: table}},
		"follow":        {[]string{"--follow"}, result{out: table}},
		"gone":          {[]string{"gone", "-o", "json"}, result{code: 4, err: "flightline: no such job (HTTP 404, job_not_found)\n"}},
		"a time":        {[]string{"--since", "noon"}, result{code: 2, err: "flightline: --since noon: must be how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z\nSee 'flightline events --help'.\n"}},
		"to come":       {[]string{"--since", "-10m"}, result{code: 2, err: "flightline: --since -10m: must be how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z\nSee 'flightline events --help'.\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", append([]string{"events", "ep"}, test.args...)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
