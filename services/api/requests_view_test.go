package api

import (
	"net/http"
	"strings"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

func TestCursorsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	q := listQuery{endpoint: endpoint.Endpoint{ID: "ep"}, statuses: []job.Status{job.Failed}}
	for _, want := range []position{{live: 1, ended: 1}, {ended: 7}, {live: 1 << 63, ended: 1}, {live: done, ended: 1<<64 - 1}, {live: done, begun: 1 << 40}} {
		if got, err := positionOf(want.cursor(q), q); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestRequestsRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit()
	s.submit()
	cursor, _ := s.do("GET", "/ep/requests?limit=1", "").body["cursor"].(string)
	if cursor == "" {
		t.Fatal("got no cursor")
	}
	other, err := s.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.queue.CreateEndpoint(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for query, names := range map[string]string{
		"/ep/requests?status=DONE":                             "IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, TIMED_OUT, CANCELLED",
		"/ep/requests?status=completed":                        "status",
		"/ep/requests?status=FAILED,":                          "status",
		"/ep/requests?from=x":                                  "from is invalid",
		"/ep/requests?from=1m&to=2m":                           "the time between from and to is invalid; must be more than 0s, got -1m0s",
		"/ep/requests?id=":                                     "beginning of a job's id",
		"/ep/requests?id=7C1d8":                                "beginning of a job's id",
		"/ep/requests?from=1h&cursor=" + cursor:                "cursor",
		"/ep/requests?limit=0":                                 "limit",
		"/ep/requests?limit=101":                               "between 1 and 100",
		"/ep/requests?limit=":                                  "limit",
		"/ep/requests?limit=ten":                               "limit",
		"/ep/requests?cursor=":                                 "cursor",
		"/ep/requests?cursor=x":                                "cursor",
		"/ep/requests?cursor=%00%ff":                           "cursor",
		"/ep/requests?cursor=" + strings.Repeat("A", 4000):     "cursor",
		"/ep/requests?cursor=" + cursor[1:]:                    "cursor",
		"/ep/requests?cursor=" + cursor + "A":                  "cursor",
		"/ep/requests?status=FAILED&cursor=" + cursor:          "cursor",
		"/other/requests?cursor=" + cursor:                     "cursor",
		"/ep/requests?status=FAILED,TIMED_OUT,FAILED&limit=-1": "limit",
	} {
		got := s.do("GET", query, "")
		if text, _ := got.body["error"].(string); got.status != http.StatusBadRequest || got.body["code"] != "invalid_request" || !strings.Contains(text, names) {
			t.Errorf("%s: got %d %s, want 400 with %q", query, got.status, got.raw, names)
		}
	}
	if got := s.do("GET", "/ep/requests?limit=2&cursor="+cursor, ""); got.status != http.StatusOK {
		t.Errorf("another limit: got %d %s", got.status, got.raw)
	}
	if got := s.do("GET", "/nobody/requests", ""); got.status != http.StatusNotFound || got.body["code"] != "endpoint_not_found" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	if got := s.do("GET", "/other/requests", ""); got.raw != `{"requests":[],"limit":10,"hasMore":false}` {
		t.Errorf("nothing there: got %d %s", got.status, got.raw)
	}
}
