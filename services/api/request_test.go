package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestPreferences(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]preferences{
		"":                           {},
		"wait=10":                    {wait: 10 * time.Second},
		"Wait = 10":                  {wait: 10 * time.Second},
		`wait="10"`:                  {wait: 10 * time.Second},
		"respond-async":              {async: true},
		"respond-async, wait=10":     {wait: 10 * time.Second, async: true},
		"return=minimal;x=1, wait=3": {wait: 3 * time.Second},
		"wait=3;foo=bar":             {wait: 3 * time.Second},
		"wait=3, wait=5":             {wait: 3 * time.Second},
		"wait=soon, wait=5":          {},
		"wait=0":                     {},
		"wait=-1":                    {},
		"wait=1.5":                   {},
		"wait=":                      {},
		"wait":                       {},
		"wait=301":                   {wait: 300 * time.Second},
		"wait=99999999999999999999":  {},
		"waiting=3, respond-asyncly": {},
		",,;=,":                      {},
	} {
		if got := parsePreferences(list); got != want {
			t.Errorf("%q: got %+v, want %+v", list, got, want)
		}
	}
}

// prefer sends a request with Prefer headers.
func (s *env) prefer(method, path, body string, values ...string) answer {
	s.t.Helper()
	req := s.request(method, path, strings.NewReader(body))
	req.Header["Prefer"] = values
	return s.send(req)
}

func TestAClientMayPreferToWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.worker()
	got := s.prefer("POST", "/ep/run", someInput, "wait=20")
	if got.status != http.StatusOK || got.body["status"] != "COMPLETED" || got.body["output"] == nil || got.header.Get("Preference-Applied") != "wait=20" {
		t.Errorf("run: got %d %s, applied %q", got.status, got.raw, got.header.Get("Preference-Applied"))
	}
	if strings.HasPrefix(got.id(), "sync-") || got.header.Get("X-Job-Id") != got.id() {
		t.Errorf("run: got id %q and header %q, want an async job's", got.id(), got.header.Get("X-Job-Id"))
	}
	again := s.prefer("GET", "/ep/status/"+got.id(), "", "foo", "wait=20")
	if again.raw != got.raw || again.header.Get("Preference-Applied") != "wait=20" {
		t.Errorf("status: got %s, applied %q", again.raw, again.header.Get("Preference-Applied"))
	}
	quick := s.prefer("POST", "/ep/runsync", someInput, "respond-async")
	if want := fmt.Sprintf(`{"id":%q,"status":"IN_QUEUE"}`, quick.id()); quick.raw != want || quick.header.Get("Preference-Applied") != "respond-async" {
		t.Errorf("runsync: got %s, applied %q", quick.raw, quick.header.Get("Preference-Applied"))
	}
	ignored := s.prefer("POST", "/ep/run", someInput, "wait=soon")
	if ignored.status != http.StatusOK || ignored.body["status"] != "IN_QUEUE" || ignored.header.Get("Preference-Applied") != "" {
		t.Errorf("no number: got %d %s, applied %q", ignored.status, ignored.raw, ignored.header.Get("Preference-Applied"))
	}
}

func TestAPreferredWaitEndsAsPromised(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, ask := range map[string]func() answer{
		"run":                  func() answer { return s.prefer("POST", "/ep/run", someInput, "wait=1") },
		"runsync":              func() answer { return s.prefer("POST", "/ep/runsync", someInput, "respond-async, wait=1") },
		"runsync with a query": func() answer { return s.prefer("POST", "/ep/runsync?wait=1000", someInput, "wait=60") },
		"status":               func() answer { return s.prefer("GET", "/ep/status/"+s.submit(), "", "wait=1") },
		"status-sync":          func() answer { return s.prefer("GET", "/ep/status-sync/"+s.submit(), "", "wait=1") },
	} {
		began := time.Now()
		got := ask()
		if took := time.Since(began); got.status != http.StatusOK || got.body["status"] != "IN_QUEUE" || took < time.Second || took > time.Second+noise {
			t.Errorf("%s: got %d %s after %s, want IN_QUEUE after 1 s", name, got.status, got.raw, took)
		}
	}
}
