package docs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// controlExamples asks /v1, in an order in which each request finds what it
// needs. {key} is the id of the key that was made.
func controlExamples(t *testing.T, s *env) []example {
	t.Helper()
	scenes := []struct{ method, path, body string }{
		{"POST", "/v1/endpoints", `{"id":"upper","executionTimeoutMs":60000}`},
		{"POST", "/v1/endpoints", `{"id":"upper"}`},
		{"POST", "/v1/endpoints", `{"id":"other","ttlMs":1}`},
		{"GET", "/v1/endpoints/upper", ""},
		{"PATCH", "/v1/endpoints/upper", `{"leaseMs":15000}`},
		{"GET", "/v1/endpoints/upper/webhooks/deliveries?failed=true", ""},
		{"POST", "/v1/endpoints/upper/webhooks/replay", `{"since":"2026-11-21T12:00:00Z"}`},
		{"POST", "/v1/endpoints/upper/webhooks/pause", `{"destination":"https://hooks.example/x","reason":"moves house"}`},
		{"GET", "/v1/endpoints/upper/webhooks/destinations", ""},
		{"POST", "/v1/endpoints/upper/webhooks/resume", `{"destination":"https://hooks.example"}`},
		{"POST", "/v1/endpoints/upper/webhooks/secret", `{"overlapMs":3600000}`},
		{"POST", "/v1/endpoints/upper/workers", `{"id":"w1"}`},
		{"GET", "/v1/endpoints/upper/workers", ""},
		{"POST", "/v1/endpoints/upper/workers/w1/drain", ""},
		{"DELETE", "/v1/endpoints/upper/workers/w1", ""},
		{"DELETE", "/v1/endpoints/upper/workers/w1", ""},
		{"POST", "/v2/upper/run", `{"input":{}}`}, // a job, so that deleting is refused
		{"DELETE", "/v1/endpoints/upper", ""},
		{"DELETE", "/v1/endpoints/upper?force=true", ""},
		{"GET", "/v1/endpoints/upper", ""},
		{"POST", "/v1/networkvolumes", `{"name":"models","size":100}`},
		{"POST", "/v1/templates", `{"name":"trainer","imageName":"me/trainer:1","env":{"HF_TOKEN":"hf_x"}}`},
		{"POST", "/v1/pods", `{"name":"trainer","imageName":"me/trainer:1","dockerStartCmd":["python","train.py"],"gpuCount":1}`},
		{"GET", "/v1/pods?desiredStatus=LOST", ""},
		{"GET", "/v1/pods/nobody", ""},
		{"POST", "/v1/keys", `{"name":"ci","scopes":["submit:upper","read:upper"]}`},
		{"POST", "/v1/keys", `{"name":"ci","scopes":["write:upper"]}`},
		{"PATCH", "/v1/keys/{key}", `{"quota":{"requests":500,"concurrent":null}}`},
		{"DELETE", "/v1/keys/{key}", ""},
	}
	var found []example
	key := ""
	for _, sc := range scenes {
		status, answer := s.ask(t, sc.method, strings.ReplaceAll(sc.path, "{key}", key), sc.body, all)
		if status >= http.StatusInternalServerError {
			t.Errorf("%s %s: got %d %s", sc.method, sc.path, status, answer)
		}
		if sc.path == "/v1/keys" && status == http.StatusOK {
			key = idOf(t, answer)
		}
		if strings.HasPrefix(sc.path, "/v1/") {
			text := fmt.Sprintf("%s %s\n\n%s\n---\n%d %s\n\n%s", sc.method, sc.path, sc.body, status, http.StatusText(status), masked(answer))
			found = append(found, example{sc.method, sc.path, text})
		}
	}
	return found
}

func idOf(t *testing.T, answer string) string {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil || made.ID == "" {
		t.Fatalf("got %s, %v, want an id", answer, err)
	}
	return made.ID
}

var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`("requestId":)"[^"]*"`), `$1"UUID"`},
	{regexp.MustCompile(`("(?:createdAt|since|overlapUntil)":)"[^"]*"`), `$1"2026-11-21T12:00:00Z"`},
	{regexp.MustCompile(`("lastStatusChange":"[^"]*: )20[^"]*"`), `${1}2026-11-21T12:00:00Z"`},
	{regexp.MustCompile(`("consumerUserId":)"[^"]*"`), `$1"ID"`},
	{regexp.MustCompile(`("webhookSecret":)"whsec_[^"]*"`), `$1"whsec_…"`},
	{regexp.MustCompile(`("key":)"[^"]*"`), `$1"KEY"`},
	{regexp.MustCompile(`("token":)"[^"]*"`), `$1"TOKEN"`},
	{regexp.MustCompile(`("last4":)"[^"]*"`), `$1"…"`},
	{regexp.MustCompile(`^\{"id":"[^"]*"(,"name":"(?:ci|models|trainer)")`), `{"id":"ID"$1`},
}

// masked is what is the same in every run.
func masked(answer string) string {
	for _, m := range masks {
		answer = m.what.ReplaceAllString(answer, m.by)
	}
	return answer
}
