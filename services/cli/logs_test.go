package cli_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLogsArePrinted(t *testing.T) {
	const (
		raw = `{"time":"2026-01-31T12:00:00.5Z","workerId":"w-1","jobId":"j1","stream":"stderr","level":"info","text":"no\u001b[2J way","truncated":true}`
		all = "retry: 1000\nid: 0\n\nid: 7-0\ndata: " + raw + "\n\n: keep-alive\nid: 7\n\nevent: end\ndata: {}\n\n"
	)
	const step = `{"time":"2026-01-31T12:00:00Z","workerId":"w-1","stream":"system","level":"info","text":"asleep"}`
	server := api{
		"GET /v2/ep/logs?follow=false&worker=w-2":                        {200, "retry: 1000\nid: 0\n\nid: 7-0\ndata: " + step + "\n\nevent: end\ndata: {}\n\n"},
		"GET /v2/ep/logs?follow=false":                                   {200, all},
		"GET /v2/ep/logs/j1":                                             {200, all},
		"GET /v2/ep/logs?follow=false&worker=w-1":                        {200, all},
		"GET /v2/ep/logs?follow=false&since=2026-01-31T12%3A00%3A00Z":    {200, all},
		"GET /v2/ep/logs/gone?follow=false":                              {404, `{"error":"no such job","code":"job_not_found"}`},
		"GET /v2/ep/logs/j2?follow=false&since=2026-01-31T12%3A00%3A00Z": {200, "retry: 1000\nid: 0\n\nevent: end\ndata: {}\n\n"},
	}.start(t, nil)
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).Local().Format(time.RFC3339)
	tests := map[string]struct {
		args []string
		want result
	}{
		"json":     {[]string{"-o", "json"}, result{out: raw + "\n"}},
		"text":     {nil, result{out: at + "  w-1  no[2J way …\n"}},
		"a worker": {[]string{"--worker", "w-1"}, result{out: at + "  no[2J way …\n"}},
		"a step":   {[]string{"--worker", "w-2"}, result{out: at + "  # asleep\n"}},
		"a job":    {[]string{"--job", "j1", "--follow"}, result{out: at + "  w-1  no[2J way …\n"}},
		"since":    {[]string{"--since", "2026-01-31T12:00:00Z"}, result{out: at + "  w-1  no[2J way …\n"}},
		"none":     {[]string{"--since", "2026-01-31T12:00:00Z", "--job", "j2"}, result{}},
		"gone":     {[]string{"--job", "gone"}, result{code: 4, err: "flightline: no such job (HTTP 404, job_not_found)\n"}},
		"a time":   {[]string{"--since", "noon"}, result{code: 2, err: "flightline: --since noon: must be how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z\nSee 'flightline logs --help'.\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", append([]string{"logs", "ep"}, test.args...)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
