package cli_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStreamPrintsChunksAndTellsTheEnd(t *testing.T) {
	const chunks = "retry: 1000\n\n" +
		"id: 3\ndata: {\"output\":\"Hello, \"}\n\n" +
		"id: 4\ndata: {\"output\":\"w\\u00f6rld\\n\"}\n\n" +
		"id: 5\ndata: {\"output\":{\"n\":1},\"metrics\":{}}\n\n"
	end := func(fields string) string { return chunks + "event: status\ndata: {\"id\":\"j1\"," + fields + "}\n\n" }
	server := api{
		"GET /v2/ep/stream/j1?format=sse":        {200, end(`"status":"COMPLETED"`)},
		"GET /v2/ep/stream/failed?format=sse":    {200, end(`"status":"FAILED","error":"no\u001b[2J way"`)},
		"GET /v2/ep/stream/cancelled?format=sse": {200, end(`"status":"CANCELLED"`)},
		"GET /v2/ep/stream/gone?format=sse":      {200, "event: gone\ndata: {\"id\":\"gone\"}\n\n"},
		"GET /v2/ep/stream/nobody?format=sse":    {404, `{"error":"no such job","code":"job_not_found"}`},
	}.start(t, nil)
	const (
		lines = "{\"output\":\"Hello, \"}\n{\"output\":\"w\\u00f6rld\\n\"}\n{\"output\":{\"n\":1},\"metrics\":{}}\n"
		raw   = "Hello, wörld\n{\"output\":{\"n\":1},\"metrics\":{}}\n"
	)
	tests := map[string]struct {
		args []string
		want result
	}{
		"json":      {[]string{"j1"}, result{out: lines}},
		"raw":       {[]string{"j1", "--format", "raw"}, result{out: raw}},
		"failed":    {[]string{"failed"}, result{code: 1, out: lines, err: "flightline: job j1 is FAILED: no[2J way\n"}},
		"cancelled": {[]string{"cancelled"}, result{code: 1, out: lines, err: "flightline: job j1 is CANCELLED\n"}},
		"gone":      {[]string{"gone"}, result{code: 4, err: "flightline: the job's ttl or retention is over (HTTP 404, job_not_found)\n"}},
		"nobody":    {[]string{"nobody"}, result{code: 4, err: "flightline: no such job (HTTP 404, job_not_found)\n"}},
		"a format":  {[]string{"j1", "--format", "xml"}, result{code: 2, err: "flightline: --format xml: must be json or raw\nSee 'flightline stream --help'.\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", append([]string{"stream", "ep"}, test.args...)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestJSONIsPrintedAsItCame(t *testing.T) {
	const answer = `{"id":"j1","status":"COMPLETED","output":"<b> & more"}`
	server := api{"GET /v2/ep/status/j1": {200, answer}}.start(t, nil)
	if got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", "status", "ep", "j1", "-o", "json"); got.out != answer+"\n" {
		t.Errorf("got %q, want %s", got.out, answer)
	}
}
