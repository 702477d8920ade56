package control

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBadEndpointsNameTheField(t *testing.T) {
	s := start(t)
	tests := map[string]struct{ body, text string }{
		"empty":                     {"", "not valid JSON"},
		"cut":                       {`{"id":`, "not valid JSON"},
		"null":                      {"null", "JSON object"},
		"an array":                  {"[]", "JSON object"},
		"nothing":                   {"{}", "name or id is required"},
		"empty names":               {`{"id":"","name":""}`, "name or id is required"},
		"id with a dot":             {`{"id":"a.b"}`, "id must match"},
		"id with a space":           {`{"id":"a b"}`, "id must match"},
		"id too long":               {`{"id":"` + strings.Repeat("x", 65) + `"}`, "id must match"},
		"a reserved id":             {`{"id":"env"}`, "id must match"},
		"id is a number":            {`{"id":1}`, "id must be a string"},
		"name too long":             {`{"name":"` + strings.Repeat("é", 192) + `"}`, "name must have at most 191 characters, got 192"},
		"name is an array":          {`{"name":[]}`, "name must be a string"},
		"timeout too short":         {`{"id":"x","executionTimeoutMs":4999}`, "executionTimeoutMs must be between 5000 and 604800000"},
		"timeout is a string":       {`{"id":"x","executionTimeoutMs":"5000"}`, "executionTimeoutMs must be a whole number"},
		"timeout is a fraction":     {`{"id":"x","executionTimeoutMs":5000.5}`, "executionTimeoutMs must be a whole number"},
		"ttl too long":              {`{"id":"x","ttlMs":604800001}`, "ttlMs must be between 10000 and 604800000"},
		"ttl overflows a duration":  {`{"id":"x","ttlMs":9223372036854775807}`, "ttlMs must be between"},
		"ttl overflows an integer":  {`{"id":"x","ttlMs":1e300}`, "ttlMs must be a whole number in at most 18 digits"},
		"retention negative":        {`{"id":"x","retentionMs":-9223372036854775808}`, "retentionMs must be between"},
		"sync retention too long":   {`{"id":"x","syncRetentionMs":300001}`, "syncRetentionMs must be between 1000 and 300000"},
		"lease too short":           {`{"id":"x","leaseMs":9999}`, "leaseMs must be between 10000 and 3600000"},
		"queue too small":           {`{"id":"x","maxQueueBytes":1000}`, "maxQueueBytes must be between 33554432 and 1000000000000"},
		"queue of too many":         {`{"id":"x","maxQueueJobs":1000000001}`, "maxQueueJobs must be between 1 and 1000000000"},
		"lost too many":             {`{"id":"x","maxLostWorkers":101}`, "maxLostWorkers must be between 1 and 100"},
		"requestsPerWorker minus":   {`{"id":"x","requestsPerWorker":-1}`, "requestsPerWorker must be between 0"},
		"failureBudget too much":    {`{"id":"x","failureBudget":1001}`, "failureBudget must be between 0 and 1000, got 1001"},
		"failureBudget minus":       {`{"id":"x","failureBudget":-1}`, "failureBudget must be between 0 and 1000, got -1"},
		"rollout":                   {`{"id":"x","rollout":"canary:0%"}`, `rollout must be "replace" or "canary:10%" with 1 to 99 in place of 10, got "canary:0%"`},
		"rollout is a number":       {`{"id":"x","rollout":10}`, "rollout must be a string"},
		"workersMax too many":       {`{"id":"x","workersMax":1001}`, "workersMax must be between 0 and 1000, got 1001"},
		"workersMin over the max":   {`{"id":"x","workersMin":5,"workersMax":4}`, "workersMin must be between 0 and 4, got 5"},
		"streamFormat":              {`{"id":"x","streamFormat":"xml"}`, `streamFormat must be "auto", "array" or "object", got "xml"`},
		"limits is an array":        {`{"id":"x","limits":[]}`, "limits must be an object"},
		"a limit is a number":       {`{"id":"x","limits":{"run":5}}`, "limits.run must be an object"},
		"a limit's field is a word": {`{"id":"x","limits":{"run":{"requests":"many"}}}`, "limits.run.requests must be a whole number"},
		"a limit of nothing":        {`{"id":"x","limits":{"walk":{"requests":1}}}`, "limits.walk is no operation: must be of cancel"},
		"scalerType":                {`{"id":"x","scalerType":"CPU"}`, `scalerType must be "QUEUE_DELAY" or "REQUEST_COUNT", got "CPU"`},
		"scalerValue":               {`{"id":"x","scalerValue":-1}`, "scalerValue must be between 1 and 100000, got -1"},
		"idleTimeout":               {`{"id":"x","idleTimeout":3601}`, "idleTimeout must be between 1 and 3600 seconds, got 3601"},
		"idleTimeout minus":         {`{"id":"x","idleTimeout":-9223372036854775808}`, "idleTimeout must be between 1 and 3600 seconds"},
		"sleepTimeout":              {`{"id":"x","sleepTimeout":604801}`, "sleepTimeout must be 0, or between 1 and 604800 seconds, got 604801"},
		"sleepTimeout minus":        {`{"id":"x","sleepTimeout":-1}`, "sleepTimeout must be 0, or between 1 and 604800 seconds, got -1"},
		"sleepGpuShare":             {`{"id":"x","sleepGpuShare":1.5}`, "sleepGpuShare must be between 0 and 1, got 1.5"},
		"sleepGpuShare minus":       {`{"id":"x","sleepGpuShare":-0.1}`, "sleepGpuShare must be between 0 and 1, got -0.1"},
		"idleTimeout is a fraction": {`{"id":"x","idleTimeout":1.5}`, "idleTimeout must be a whole number"},
		"no name of a GPU":          {`{"id":"x","gpuTypeIds":[""]}`, "gpuTypeIds[0] must have 1 to 191 bytes, got 0"},
		"memory of a GPU":           {`{"id":"x","minVramGb":1025}`, "minVramGb must be between 0 and 1024, got 1025"},
		"a version of CUDA":         {`{"id":"x","minCudaVersion":"12"}`, `minCudaVersion must be a version like 12.4, got "12"`},
		"a share too small":         {`{"id":"x","gpuShare":0.2}`, "gpuShare must be between 0.25 and 1, got 0.2"},
		"a share of nothing":        {`{"id":"x","gpuShare":0}`, "gpuShare must be between 0.25 and 1"},
		"a share of two GPUs":       {`{"id":"x","gpuCount":2,"gpuShare":0.5}`, "gpuShare must be 1 where gpuCount is more than 1"},
		"priority":                  {`{"id":"x","priority":3}`, "priority must be between -2 and 2, got 3"},
		"a hold of nothing":         {`{"id":"x","minHoldMs":0}`, "minHoldMs must be between 1000 and 86400000"},
		"a swap too long":           {`{"id":"x","maxSwapWaitMs":86400001}`, "maxSwapWaitMs must be between 1000 and 86400000, got 86400001"},
		"driver":                    {`{"id":"x","driver":"vm"}`, `driver must be "process", "docker" or "external", got "vm"`},
		"process without a command": {`{"id":"x","driver":"process"}`, "command is needed by the driver process"},
		"docker without an image":   {`{"id":"x","driver":"docker"}`, "imageName is needed by the driver docker"},
		"no such template":          {`{"templateId":"nobody"}`, `templateId is that of no template, got "nobody"`},
		"templateId has a slash":    {`{"templateId":"a/b"}`, "templateId is that of no template"},
		"command is a string":       {`{"id":"x","command":"python w.py"}`, "command must be an array"},
		"a word is a number":        {`{"id":"x","command":[1]}`, "command[0] must be a string"},
		"env is an array":           {`{"id":"x","env":["A=b"]}`, "env must be an object"},
		"a value is a number":       {`{"id":"x","env":{"A":1}}`, "env.A must be a string"},
		"a name with =":             {`{"id":"x","env":{"A=":"1"}}`, "env has a name"},
		"a value of two lines":      {`{"id":"x","env":{"A":"1\n2"}}`, "env.A must not hold a line break"},
		"an init timeout in words":  {`{"id":"x","env":{"RUNPOD_INIT_TIMEOUT":"7m"}}`, `env.RUNPOD_INIT_TIMEOUT must be whole seconds between 1 and 86400, got "7m"`},
		"a value that was hidden":   {`{"id":"x","env":{"A":"***"}}`, `env.A is "***"`},
		"gpuCount":                  {`{"id":"x","gpuCount":65}`, "gpuCount must be between 0 and 64, got 65"},
		"vcpuCount":                 {`{"id":"x","vcpuCount":-0.5}`, "vcpuCount must be between 0 and 1024, got -0.5"},
		"vcpuCount is a word":       {`{"id":"x","vcpuCount":"2"}`, "vcpuCount must be a number"},
		"memoryInGb":                {`{"id":"x","memoryInGb":65537}`, "memoryInGb must be between 0 and 65536, got 65537"},
		"a limit is negative":       {`{"id":"x","limits":{"run":{"requests":-1}}}`, "limits.run must not be negative"},
	}
	for name, tc := range tests {
		s.expect(name, s.do("POST", "/endpoints", tc.body), 400, "invalid_request", tc.text)
	}
	if got := s.do("GET", "/endpoints", ""); got.raw != "[]" {
		t.Errorf("got %s, want none made", got.raw)
	}
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.expect("patch", s.do("PATCH", "/endpoints/ep1", `{"leaseMs":1}`), 400, "invalid_request", "leaseMs must be between")
	s.expect("patch of limits", s.do("PATCH", "/endpoints/ep1", `{"limits":{"walk":{}}}`), 400, "invalid_request", "limits.walk is no operation")
	s.expect("large", s.do("POST", "/endpoints", `{"id":"x","name":"`+strings.Repeat("x", 1<<20)+`"}`), 413, "body_too_large", "")
}

func TestWithoutTheBusV1Is503Within5s(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	s.bus.Stop()
	var calls sync.WaitGroup
	for _, call := range [][2]string{{"POST", "/endpoints"}, {"GET", "/endpoints"}, {"PATCH", "/endpoints/ep1"}, {"DELETE", "/endpoints/ep1"}, {"GET", "/keys"}} {
		calls.Go(func() {
			began := time.Now()
			got := s.do(call[0], call[1], `{"name":"x"}`)
			s.expect(call[0]+" "+call[1], got, 503, "unavailable", "try again")
			if took := time.Since(began); took > 5*time.Second+noise || got.header.Get("Retry-After") != "1" {
				t.Errorf("%v: took %s, Retry-After %q", call, took, got.header.Get("Retry-After"))
			}
		})
	}
	calls.Wait()
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("got nil, want an error")
	}
}

// Within the bounds of its fields, a record may be too large for a message of NATS. That is no
// outage, after which the same would succeed.
func TestARecordThatIsTooLargeIsRefused(t *testing.T) {
	s := start(t)
	markup := strings.Repeat("<", 65_000)
	made := s.do("POST", "/templates", fmt.Sprintf(`{"name":"t","imageName":"i","readme":%[1]q,"env":{"A":%[1]q},"dockerStartCmd":[%[1]q],"dockerEntrypoint":[%[1]q]}`, markup))
	s.expect("markup takes no more than it has", made, 200, "", "")
	path, control := fmt.Sprintf("/templates/%s", made.body["id"]), strings.Repeat(`\u0001`, 65_000) // six bytes each
	for field, value := range map[string]string{"readme": `"` + control + `"`, "dockerStartCmd": `["` + control + `"]`} {
		s.expect(field, s.do("PATCH", path, `{"`+field+`":`+value+`}`), 200, "", "")
	}
	s.expect("one more", s.do("PATCH", path, `{"dockerEntrypoint":["`+control+`"]}`), 400, "invalid_request", "the record has 1")
}
