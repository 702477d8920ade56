package cli_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestRequestsListsJobsAndSaysHowToGoOn(t *testing.T) {
	const last = `{"requests":[{"id":"a","status":"IN_QUEUE"}],"limit":10,"hasMore":false}`
	server := api{
		"GET /v2/ep/requests?limit=1&status=FAILED%2CTIMED_OUT": {200, `{"requests":[{"id":"b","status":"FAILED","delayTime":12,"executionTime":3,"retries":2,"workerId":"w\u001b[2J"}],"limit":1,"hasMore":true,"cursor":"c1"}`},
		"GET /v2/ep/requests?cursor=c1":                         {200, last},
		"GET /v2/ep/requests?status=NO":                         {400, `{"error":"status is invalid","code":"invalid_request"}`},
		"GET /v2/ep/requests":                                   {200, last},
	}.start(t, nil)
	const head = "ID  STATUS    SUBMITTED  DELAY  EXECUTION  RETRIES  WORKER\n"
	for args, want := range map[string]result{
		"requests ep --status failed,TIMED_OUT --limit 1": {
			out: "ID  STATUS  SUBMITTED  DELAY  EXECUTION  RETRIES  WORKER\nb   FAILED  -          12ms   3ms        2        w[2J\n",
			err: "more: flightline requests ep --limit 1 --status failed,TIMED_OUT --cursor c1\n",
		},
		"requests ep --cursor c1": {out: head + "a   IN_QUEUE  -          -      -          0        -\n"},
		"requests ep -o json":     {out: last + "\n"},
		"requests ep --status no": {code: 1, err: "flightline: status is invalid (HTTP 400, invalid_request)\n"},
	} {
		if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}

// The next page is of the same list, as large, from the same server; a key is not shown.
func TestTheNextPageKeepsWhatWasTyped(t *testing.T) {
	server := api{
		"GET /v2/ep/requests?cursor=c0&limit=100&status=FAILED&worker=a+b": {200, `{"requests":[],"hasMore":true,"cursor":"c1"}`},
		"GET /v1/endpoints/ep/webhooks/deliveries?job=j1&limit=100":        {200, `{"deliveries":[],"hasMore":true,"cursor":"7"}`},
	}.start(t, nil)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"requests", "ep", "--limit", "100", "--status", "failed", "--worker", "a b", "--cursor", "c0", "--api-key", "secret"}, "requests ep --limit 100 --status failed --url URL --worker 'a b' --cursor c1"},
		{[]string{"webhook", "deliveries", "ep", "--failed=false", "--job", "j1", "--limit", "100"}, "webhook deliveries ep --failed=false --job j1 --limit 100 --url URL --cursor 7"},
	} {
		got := run(t, nil, "", append(test.args, "--url", server)...)
		want := "more: flightline " + strings.Replace(test.want, "URL", server, 1) + "\n"
		if got.code != 0 || !strings.HasSuffix(got.err, want) || strings.Contains(got.out, "more") {
			t.Errorf("%v: got %+v, want %q", test.args, got, want)
		}
	}
}

func TestALookForLaterIsAtTheSameServer(t *testing.T) {
	server := api{"POST /v2/ep/runsync?wait=2000": {200, `{"id":"s1","status":"IN_QUEUE"}`}}.start(t, nil)
	got := run(t, nil, "", "runsync", "ep", "{}", "--wait", "2s", "--url", server, "--retry-timeout", "0s")
	if want := "look later: flightline status ep s1 --retry-timeout 0s --url " + server + "\n"; got.code != 1 || !strings.HasSuffix(got.err, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestAnIdempotencyKeyGoesWithTheSubmission(t *testing.T) {
	var seen http.Request
	server := api{"POST /v2/ep/run": {200, `{"id":"j1","status":"IN_QUEUE"}`}}.start(t, &seen)
	got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", "run", "ep", "{}", "--idempotency-key", "order-7")
	if key := seen.Header.Get("Idempotency-Key"); got.code != 0 || key != "order-7" {
		t.Errorf("got %+v with key %q, want order-7", got, key)
	}
}
