package api

import (
	"fmt"
	"strings"
	"testing"
)

// Every bad input has its own answer, and none of them queues anything.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := strings.Repeat("x", 5000)
	bodies := map[string]struct{ body, text string }{
		"empty":                      {"", "empty"},
		"blank":                      {" \n", "empty"},
		"a byte order mark":          {"\uFEFF{\"input\":{}}", "the body must not begin with a byte order mark"},
		"null":                       {"null", "object"},
		"an array":                   {"[]", "object"},
		"a string":                   {`"x"`, "object"},
		"a number":                   {"1", "object"},
		"cut":                        {`{"input":{`, "not valid JSON"},
		"two documents":              {`{"input":{}}{}`, "not valid JSON"},
		"a trailing comma":           {`{"input":{},}`, "not valid JSON"},
		"single quotes":              {`{'input':{}}`, "not valid JSON"},
		"a form":                     {"input=1", "object"},
		"no input":                   {"{}", "input is required"},
		"null input":                 {`{"input":null}`, "input is required"},
		"input is a string":          {`{"input":"x"}`, "input"},
		"input is an array":          {`{"input":[]}`, "input"},
		"input is a number":          {`{"input":1}`, "input"},
		"webhook is no string":       {`{"input":{},"webhook":1}`, "webhook must be a string"},
		"webhook is no URL":          {`{"input":{},"webhook":"x"}`, "webhook must be an http"},
		"webhook speaks ftp":         {`{"input":{},"webhook":"ftp://x/"}`, "webhook must be an http"},
		"webhook has no host":        {`{"input":{},"webhook":"http:///x"}`, "webhook must be an http"},
		"webhook is long":            {`{"input":{},"webhook":"http://x/` + long + `"}`, "webhook must have at most 4096 bytes, got"},
		"policy is no object":        {`{"input":{},"policy":[]}`, "policy must be"},
		"timeout too short":          {`{"input":{},"policy":{"executionTimeout":4999}}`, "policy.executionTimeout must be between 5000 and 604800000"},
		"timeout too long":           {`{"input":{},"policy":{"executionTimeout":604800001}}`, "policy.executionTimeout must be between"},
		"timeout is a string":        {`{"input":{},"policy":{"executionTimeout":"5000"}}`, "policy.executionTimeout must be a whole number"},
		"timeout is a fraction":      {`{"input":{},"policy":{"executionTimeout":5000.5}}`, "policy.executionTimeout must be a whole number"},
		"timeout is negative":        {`{"input":{},"policy":{"executionTimeout":-1}}`, "policy.executionTimeout must be between"},
		"timeout is huge":            {`{"input":{},"policy":{"executionTimeout":1e300}}`, "policy.executionTimeout must be between"},
		"ttl too short":              {`{"input":{},"policy":{"ttl":9999}}`, "policy.ttl must be between 10000 and 604800000"},
		"ttl too long":               {`{"input":{},"policy":{"ttl":604800001}}`, "policy.ttl must be between"},
		"ttl is an object":           {`{"input":{},"policy":{"ttl":{}}}`, "policy.ttl must be a whole number"},
		"lowPriority is a string":    {`{"input":{},"policy":{"lowPriority":"yes"}}`, `policy.lowPriority must be true or false, got "yes"`},
		"lowPriority is a number":    {`{"input":{},"policy":{"lowPriority":1}}`, "policy.lowPriority must be true or false, got 1"},
		"s3Config is no object":      {`{"input":{},"s3Config":"x"}`, "s3Config must be"},
		"s3Config.accessId":          {`{"input":{},"s3Config":{"accessId":1}}`, "s3Config.accessId"},
		"s3Config.bucketName":        {`{"input":{},"s3Config":{"bucketName":{}}}`, "s3Config.bucketName"},
		"s3Config is large":          {`{"input":{},"s3Config":{"x":"` + strings.Repeat("x", 17<<10) + `"}}`, "s3Config must have at most 16384 bytes, got"},
		"a control character inside": {"{\"input\":{\"a\":\"\n\"}}", "not valid JSON"},
	}
	for name, tc := range bodies {
		for _, path := range []string{"/ep/run", "/ep/runsync?wait=1000"} {
			expect(t, name+" at "+path, s.do("POST", path, tc.body), 400, "invalid_request", tc.text)
		}
	}
	id := s.submit()
	const waitText = "wait is invalid; must be between 1000 and 300000"
	const ttlText = "ttl is invalid; must be between 1000 and 604800000"
	others := map[string]struct {
		method, path string
		status       int
		code, text   string
	}{
		"wait too short":            {"POST", "/ep/runsync?wait=999", 400, "invalid_request", waitText},
		"wait too long":             {"POST", "/ep/runsync?wait=300001", 400, "invalid_request", waitText},
		"wait is a word":            {"POST", "/ep/runsync?wait=long", 400, "invalid_request", waitText},
		"wait is empty":             {"POST", "/ep/runsync?wait=", 400, "invalid_request", waitText},
		"wait is negative":          {"GET", "/ep/status-sync/" + id + "?wait=-5", 400, "invalid_request", waitText},
		"wait overflows":            {"GET", "/ep/status-sync/" + id + "?wait=99999999999999999999", 400, "invalid_request", waitText},
		"wait is a fraction":        {"GET", "/ep/status-sync/" + id + "?wait=1000.5", 400, "invalid_request", waitText},
		"ttl of a status too short": {"GET", "/ep/status/" + id + "?ttl=999", 400, "invalid_request", ttlText},
		"ttl of a status too long":  {"GET", "/ep/status/" + id + "?ttl=604800001", 400, "invalid_request", ttlText},
		"ttl of a status is a word": {"GET", "/ep/status/" + id + "?ttl=x", 400, "invalid_request", ttlText},
		"a cursor beyond all":       {"GET", "/ep/stream/" + id + "?cursor=18446744073709551615", 400, "invalid_request", "cursor is invalid"},
		"a cursor that is negative": {"GET", "/ep/stream/" + id + "?cursor=-1", 400, "invalid_request", "cursor is invalid"},
		"an empty cursor":           {"GET", "/ep/stream/" + id + "?cursor=", 400, "invalid_request", "cursor is invalid"},
		"unknown job":               {"GET", "/ep/status/nobody", 404, "job_not_found", "no such job"},
		"unknown job, waiting":      {"GET", "/ep/status-sync/nobody?wait=60000", 404, "job_not_found", "no such job"},
		"unknown job, ttl":          {"GET", "/ep/status/nobody?ttl=60000", 404, "job_not_found", "no such job"},
		"unknown job, cancel":       {"POST", "/ep/cancel/nobody", 404, "job_not_found", "no such job"},
		"unknown job, retry":        {"POST", "/ep/retry/nobody", 404, "job_not_found", "no such job"},
		"an id with a wildcard":     {"GET", "/ep/status/*", 404, "job_not_found", "no such job"},
		"an id with all":            {"GET", "/ep/status/%3E", 404, "job_not_found", "no such job"},
		"an id with a dot":          {"POST", "/ep/cancel/a.b", 404, "job_not_found", "no such job"},
		"an id too long":            {"POST", "/ep/retry/" + strings.Repeat("x", 129), 404, "job_not_found", "no such job"},
		"an encoded slash":          {"GET", "/ep/status/a%2Fb", 404, "job_not_found", "no such job"},
		"unknown endpoint":          {"POST", "/nobody/run", 404, "endpoint_not_found", "no such endpoint"},
		"an endpoint with wildcard": {"POST", "/*/run", 404, "endpoint_not_found", "no such endpoint"},
		"a reserved endpoint":       {"GET", "/env/health", 404, "endpoint_not_found", "no such endpoint"},
		"unknown endpoint's purge":  {"POST", "/nobody/purge-queue", 404, "endpoint_not_found", "no such endpoint"},
		"no such operation":         {"POST", "/ep/runner", 404, "route_not_found", "no such route"},
		"run with GET":              {"GET", "/ep/run", 405, "method_not_allowed", "method"},
		"health with POST":          {"POST", "/ep/health", 405, "method_not_allowed", "method"},
		"status with DELETE":        {"DELETE", "/ep/status/" + id, 405, "method_not_allowed", "method"},
	}
	for name, tc := range others {
		expect(t, name, s.do(tc.method, tc.path, `{"input":{}}`), tc.status, tc.code, tc.text)
	}
	if got := s.do("POST", "/ep/purge-queue", ""); got.body["removed"] != 1.0 {
		t.Errorf("got %s, want the one good job and nothing else in the queue", got.raw)
	}
}

func expect(t *testing.T, name string, got answer, status int, code, text string) {
	t.Helper()
	if got.status != status || got.body["code"] != code || got.body["status"] != nil || !strings.Contains(fmt.Sprint(got.body["error"]), text) {
		t.Errorf("%s: got %d %s, want %d %s with %q", name, got.status, got.raw, status, code, text)
	}
	if got.body["requestId"] != got.header.Get("X-Request-ID") || got.body["requestId"] == "" {
		t.Errorf("%s: got request id %v and header %q", name, got.body["requestId"], got.header.Get("X-Request-ID"))
	}
}

func TestWithoutAKeyEverythingIs401(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, operation := range []string{
		"POST /ep/run", "POST /ep/runsync", "POST /ep/status/x", "GET /ep/status/x?ttl=5000", "POST /ep/status-sync/x",
		"GET /ep/stream/x", "GET /ep/stream/x?format=sse", "POST /ep/cancel/x", "POST /ep/retry/x", "POST /ep/purge-queue",
		"GET /ep/requests", "GET /ep/health", "POST /nobody/run",
	} {
		method, path, _ := strings.Cut(operation, " ")
		for _, key := range []string{"", "Bearer", "Bearer nobody", "nobody"} {
			req := s.request(method, path, strings.NewReader(`{"input":{}}`))
			req.Header.Set("Authorization", key)
			got := s.send(req)
			expect(t, operation+" with "+key, got, 401, "unauthorized", "API key")
			if got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: no WWW-Authenticate", operation)
			}
		}
	}
}
