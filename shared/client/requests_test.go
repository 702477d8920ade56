package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
	"flightline/shared/job"
)

func TestRequestsReadsAPage(t *testing.T) {
	const page = `{"requests":[{"id":"b","status":"IN_QUEUE","submittedAt":"2026-01-02T03:04:05.678Z"},` +
		`{"id":"a","status":"FAILED","delayTime":5,"executionTime":7,"retries":1,"workerId":"w","submittedAt":"2026-01-02T03:04:05Z",` +
		`"startedAt":"2026-01-02T03:04:06Z","finishedAt":"2026-01-02T03:04:07Z"}],"limit":2,"hasMore":true,"cursor":"next"}`
	s := serve(t, ok(page))
	got, err := s.Requests(t.Context(), "e/p", client.RequestsOptions{Statuses: []job.Status{job.InQueue, job.Failed}, Limit: 2, Cursor: "c+"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "/v2/e%2Fp/requests?cursor=c%2B&limit=2&status=IN_QUEUE%2CFAILED"; s.requests()[0].URI != want {
		t.Errorf("got %s, want %s", s.requests()[0].URI, want)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	failed := got.Requests[1]
	if len(got.Requests) != 2 || got.Cursor != "next" || compact(t, got) != page || !got.Requests[0].Submitted.Equal(at.Add(678*time.Millisecond)) {
		t.Errorf("got %+v", got)
	}
	if failed.Status != job.Failed || failed.Delay != 5*time.Millisecond || failed.WorkerID != "w" || failed.Retries != 1 ||
		!failed.Started.Equal(at.Add(time.Second)) || !failed.Finished.Equal(at.Add(2*time.Second)) {
		t.Errorf("got %+v", failed)
	}
	s = serve(t, ok(page))
	if _, err := s.Requests(t.Context(), "ep", client.RequestsOptions{From: "24h", To: "2026-01-02T03:04:05Z", ID: "01920c2e"}); err != nil || s.requests()[0].URI != "/v2/ep/requests?from=24h&id=01920c2e&to=2026-01-02T03%3A04%3A05Z" {
		t.Errorf("by time and id: got %s, %v", s.requests()[0].URI, err)
	}
	s = serve(t, ok(page))
	if _, err := s.Requests(t.Context(), "ep", client.RequestsOptions{}); err != nil || s.requests()[0].URI != "/v2/ep/requests" {
		t.Errorf("without options: got %s, %v", s.requests()[0].URI, err)
	}
}

func TestASubmissionWithAKeyIsTriedAgain(t *testing.T) {
	away := answer{status: http.StatusServiceUnavailable, body: `{"error":"away","code":"unavailable"}`}
	s := serve(t, away, away, ok(`{"id":"j","status":"IN_QUEUE"}`))
	r := client.Request{Input: struct{}{}, IdempotencyKey: "once"}
	j, err := s.Run(t.Context(), "ep", r)
	if err != nil || j.ID != "j" || len(s.requests()) != 3 {
		t.Fatalf("got %+v, %v after %d requests, want job j after 3", j, err, len(s.requests()))
	}
	for _, r := range s.requests() {
		if diff := cmp.Diff(s.requests()[0], r); diff != "" || r.Body != `{"input":{}}` {
			t.Errorf("requests differ: %s", diff)
		}
	}
	mismatch := serve(t, answer{status: http.StatusUnprocessableEntity, body: `{"error":"used","code":"idempotency_mismatch"}`})
	var refused *client.Error
	if _, err := mismatch.RunSync(t.Context(), "ep", r, time.Second); !errors.As(err, &refused) || refused.Code != client.CodeIdempotencyMismatch || len(mismatch.requests()) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestTheKeyIsSent(t *testing.T) {
	keys := make(chan string, 2)
	web := serveHeader(t, "Idempotency-Key", keys)
	for _, want := range []string{"once", ""} {
		if _, err := web.Run(t.Context(), "ep", client.Request{Input: struct{}{}, IdempotencyKey: want}); err != nil {
			t.Fatal(err)
		}
		if got := <-keys; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// serveHeader is a server that accepts jobs and sends a header of each request to values.
func serveHeader(t *testing.T, name string, values chan<- string) *client.Client {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values <- r.Header.Get(name)
		_, _ = io.WriteString(w, `{"id":"j","status":"IN_QUEUE"}`)
	}))
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
