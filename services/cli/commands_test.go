package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswersAreTablesOrTheAPIsJSON(t *testing.T) {
	const done = `{"id":"j1","status":"COMPLETED","delayTime":12,"executionTime":3,"output":{ "a" : "b" },"workerId":"w1"}`
	const endpoint = `{"id":"ep","name":"n","executionTimeoutMs":600000,"ttlMs":86400000,"retentionMs":1800000,` +
		`"syncRetentionMs":60000,"leaseMs":30000,"maxLostWorkers":3,"maxQueueBytes":10737418240,"workersMax":3,"streamFormat":"auto","version":1}`
	server := api{
		"GET /v2/ep/status/j1":                   {200, done},
		"GET /v2/ep/status/j1?ttl=60000":         {200, done},
		"GET /v2/ep/status-sync/j1?wait=50000":   {200, done},
		"POST /v2/ep/run":                        {200, `{"id":"j1","status":"IN_QUEUE"}`},
		"POST /v2/ep/retry/j1":                   {200, `{"id":"j1","status":"IN_QUEUE"}`},
		"POST /v2/ep/purge-queue":                {200, `{"removed":2,"status":"completed"}`},
		"GET /v2/ep/health":                      {200, `{"jobs":{"inQueue":4},"workers":{"idle":1}}`},
		"POST /v1/endpoints":                     {200, endpoint},
		"GET /v1/endpoints/ep":                   {200, endpoint},
		"GET /v1/endpoints":                      {200, "[" + endpoint + "]"},
		"PATCH /v1/endpoints/ep":                 {200, endpoint},
		"DELETE /v1/endpoints/ep?force=true":     {204, ``},
		"POST /v1/keys":                          {200, `{"id":"k1","name":"ci","scopes":["read:*"],"key":"fl_x"}`},
		"GET /v1/keys":                           {200, `[{"id":"k1","name":"ci","scopes":["read:*"],"last4":"wxyz"}]`},
		"PATCH /v1/keys/k1":                      {200, `{"id":"k1","name":"ci","scopes":["read:*"],"quota":{"requests":5,"endpoints":2}}`},
		"DELETE /v1/keys/k1":                     {204, ``},
		"POST /v2/ep/runsync?wait=2000":          {200, done},
		"GET /v2/ep/status-sync/evil?wait=50000": {200, `{}`},
		"GET /v2/ep/status/evil":                 {200, "{\"id\":\"evil\",\"status\":\"FAILED\",\"error\":\"a\\nb\\u001b[2J\"}"},
	}.start(t, nil)
	jobTable := "ID         j1\nSTATUS     COMPLETED\nDELAY      12ms\nEXECUTION  3ms\nWORKER     w1\nOUTPUT     {\"a\":\"b\"}\n"
	tests := map[string]struct{ args, want string }{
		"run":              {"run ep {}", "ID      j1\nSTATUS  IN_QUEUE\n"},
		"run, wait":        {"run ep {} --wait", jobTable},
		"runsync":          {"runsync ep {} --wait 2s", jobTable},
		"status":           {"status ep j1", jobTable},
		"status, json":     {"status ep j1 -o json", strings.ReplaceAll(done, `{ "a" : "b" }`, `{"a":"b"}`) + "\n"},
		"status, ttl":      {"status ep j1 --ttl 1m", jobTable},
		"status, wait":     {"status ep j1 --wait", jobTable},
		"retry":            {"retry ep j1", "ID      j1\nSTATUS  IN_QUEUE\n"},
		"purge":            {"purge ep", "REMOVED  2\n"},
		"purge, json":      {"purge ep -o json", "{\"removed\":2}\n"},
		"list":             {"endpoint list", "ID  NAME  CREATED\nep  n     -\n"},
		"list, json":       {"endpoint list -o json", "[" + endpoint + "]\n"},
		"delete":           {"endpoint delete ep --force", "DELETED  ep\n"},
		"key create":       {"key create ci --scope read:*", "ID      k1\nNAME    ci\nSCOPES  read:*\nQUOTA   default\nKEY     fl_x\n"},
		"key list":         {"key list", "ID  NAME  ENDS IN  SCOPES  QUOTA    CREATED\nk1  ci    wxyz     read:*  default  -\n"},
		"key quota":        {"key quota k1 requests=5 endpoints=2", "ID     k1\nNAME   ci\nQUOTA  endpoints=2,requests=5\n"},
		"key revoke":       {"key revoke k1", "REVOKED  k1\n"},
		"version":          {"version", "flightline v1.2.3\n"},
		"a hostile worker": {"status ep evil", "ID         evil\nSTATUS     FAILED\nDELAY      0s\nEXECUTION  0s\nERROR      a b[2J\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(test.args)...)
			if diff := cmp.Diff(result{out: test.want}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for _, args := range []string{"endpoint get ep", "endpoint create ep", "endpoint update ep --workers-max 3", "health ep"} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": server}, "", strings.Fields(args)...)
		if got.code != 0 || !strings.Contains(got.out, "3") && !strings.Contains(got.out, "in queue") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

func TestInputComesFromTheArgumentAFileOrStandardInput(t *testing.T) {
	var got string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		_, _ = io.WriteString(w, `{"id":"j1","status":"IN_QUEUE"}`)
	}))
	defer web.Close()
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"from":"file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"argument":            {"", []string{`{"a":1}`}, `{"input":{"a":1}}`},
		"file":                {"", []string{"@" + file}, `{"input":{"from":"file"}}`},
		"standard input":      {`{"b":2}`, []string{"-"}, `{"input":{"b":2}}`},
		"a byte order mark":   {"\ufeff{\"b\":2}\r\n", []string{"-"}, `{"input":{"b":2}}`},
		"a whole request":     {"", []string{`{"input":{"a":1},"webhook":"http://h/"}`}, `{"input":{"a":1},"webhook":"http://h/"}`},
		"its policy":          {"", []string{`{"input":{},"policy":{"ttl":10000}}`}, `{"input":{},"policy":{"ttl":10000}}`},
		"its bucket":          {"", []string{`{"input":{},"s3Config":{"bucketName":"b","region":"eu-1"}}`}, `{"input":{},"s3Config":{"bucketName":"b","region":"eu-1"}}`},
		"flags":               {"", []string{`{}`, "--ttl", "1m", "--execution-timeout", "5s", "--low-priority"}, `{"input":{},"policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true}}`},
		"no webhook":          {"", []string{`{"input":{},"webhook":"http://h/"}`, "--webhook", ""}, `{"input":{}}`},
		"no low priority":     {"", []string{`{"input":{},"policy":{"lowPriority":true}}`, "--low-priority=false"}, `{"input":{}}`},
		"flags before policy": {"", []string{`{"input":{},"policy":{"ttl":10000}}`, "--ttl", "1m", "--webhook", "http://h/"}, `{"input":{},"webhook":"http://h/","policy":{"ttl":60000}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := run(t, map[string]string{"FLIGHTLINE_URL": web.URL}, test.stdin, append([]string{"run", "ep"}, test.args...)...)
			if r.code != 0 || got != test.want {
				t.Errorf("got %s (%+v), want %s", got, r, test.want)
			}
		})
	}
}
