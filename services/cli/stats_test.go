package cli_test

import (
	"strings"
	"testing"
)

func TestStatisticsAndSearch(t *testing.T) {
	const (
		point    = `{"at":"2026-01-31T12:00:00.000Z","submitted":3,"completed":2,"failed":1,"delayMs":{"p50":1500,"p95":2500},"executionMs":{"p50":20,"p95":30},"workers":2}`
		group    = `{"endpoint":"ep","fingerprint":"00112233aabbccdd","error":"no\u001b[2Jmodel","count":7,"firstAt":"2026-01-31T12:00:00.000Z","lastAt":"2026-01-31T12:01:00.000Z"}`
		endpoint = `{"id":"ID","jobs":{"inQueue":4,"inProgress":1},"workers":{"idle":1,"running":1},"lastHour":{"completed":[1,2],"failed":[0,1]},"attention":NEEDS}`
	)
	of := func(id, needs string) string { return strings.NewReplacer("ID", id, "NEEDS", needs).Replace(endpoint) }
	server := api{
		"GET /v2/ep/stats?step=60":                                   {200, `{"endpoint":"ep","step":60,"points":[` + point + `]}`},
		"GET /v2/ep/stats?from=2026-01-31T12%3A00%3A00Z&step=3600":   {200, `{"points":[]}`},
		"GET /v2/ep/failures":                                        {200, `[` + group + `]`},
		"GET /v1/failures":                                           {200, `[]`},
		"GET /v1/overview?limit=1000":                                {200, `{"at":"x","endpoints":[` + of("a", "[]") + `],"cursor":"a"}`},
		"GET /v1/overview?cursor=a&limit=1000":                       {200, `{"at":"x","endpoints":[` + of("b", `[{"code":"paused","text":"it is paused"}]`) + `]}`},
		"GET /v1/overview?attention=true&limit=1000":                 {200, `{"at":"x","endpoints":[` + of("b", `[{"code":"paused","text":"it is paused"}]`) + `]}`},
		"GET /v1/jobs/j1":                                            {200, `{"endpoint":"ep","id":"j1","status":"IN_QUEUE"}`},
		"GET /v1/jobs/j2":                                            {404, `{"error":"job not found","code":"job_not_found"}`},
		"GET /v2/ep/requests?fingerprint=00112233aabbccdd&worker=w1": {200, `{"requests":[],"hasMore":true,"cursor":"c"}`},
	}.start(t, nil)
	for args, want := range map[string]result{
		"find j1":               {out: "ENDPOINT  ep\nID        j1\nSTATUS    IN_QUEUE\n"},
		"find j2":               {code: 4, err: "flightline: job not found (HTTP 404, job_not_found)\n"},
		"failures -o json":      {out: "[]\n"},
		"stats ep --since noon": {code: 2, err: "flightline: --since noon: must be how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z\nSee 'flightline stats --help'.\n"},
		"stats ep --since 2026-01-31T12:00:00Z --step 1h": {out: "AT  SUBMITTED  COMPLETED  FAILED  TIMED OUT  DELAY P50  P95  EXECUTION P50  P95  WORKERS\n"},
		"requests ep --worker w1 --fingerprint 00112233aabbccdd": {
			out: "ID  STATUS  SUBMITTED  DELAY  EXECUTION  RETRIES  WORKER\n",
			err: "more: flightline requests ep --fingerprint 00112233aabbccdd --worker w1 --cursor c\n",
		},
		"overview": {out: "ENDPOINT  IN QUEUE  IN PROGRESS  WORKERS  COMPLETED IN 1H  FAILED IN 1H  ATTENTION\n" +
			"a         4         1            2        3                1             -\n" +
			"b         4         1            2        3                1             it is paused\n"},
		"overview --attention": {out: "ENDPOINT  IN QUEUE  IN PROGRESS  WORKERS  COMPLETED IN 1H  FAILED IN 1H  ATTENTION\n" +
			"b         4         1            2        3                1             it is paused\n"},
	} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
	for args, parts := range map[string][]string{
		"stats ep --step 1m": {"3          2          1       0          1.5s       2.5s  20ms           30ms  2"},
		"failures ep":        {"7      ep        00112233aabbccdd", "no[2Jmodel"},
	} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...)
		for _, part := range parts {
			if got.code != 0 || !strings.Contains(got.out, part) {
				t.Errorf("%s: got %+v, want %q in it", args, got, part)
			}
		}
	}
}
