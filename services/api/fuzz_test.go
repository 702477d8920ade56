package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/ratelimit"
	"flightline/shared/testenv/backend"
	"flightline/shared/web"
)

// fuzzed are the requests that are made of an id, a query and the value of a
// header. None of them waits: nobody has such a job.
var fuzzed = []struct {
	method, path, query string
	headers             []string
}{
	{"GET", "/v2/{id}/status/nobody", "", nil},
	{"GET", "/v2/ep/status/{id}", "{query}", []string{"Prefer"}},
	{"GET", "/v2/ep/status-sync/{id}", "wait={query}", nil},
	{"GET", "/v2/ep/status/{id}", "ttl={query}", nil},
	{"POST", "/v2/ep/stream/{id}", "format={query}", []string{"Accept", "Content-Type", "User-Agent"}},
	{"GET", "/v2/ep/stream/{id}", "cursor={query}", []string{"Last-Event-ID"}},
	{"POST", "/v2/ep/cancel/{id}", "{query}", []string{"Content-Type"}},
	{"GET", "/v2/ep/requests", "{query}", nil},
	{"GET", "/v2/ep/requests", "cursor={query}", nil},
	{"GET", "/v2/ep/requests", "status={query}", nil},
	{"POST", "/v2/ep/run", "{query}", []string{"Idempotency-Key"}},
	{"POST", "/v2/ep/run", "{query}", []string{"Content-Encoding", "Content-Type"}},
	{"GET", "/v2/{id}/health", "{query}", []string{"Authorization"}},
}

// Whatever ids, queries and headers hold, the answer is JSON and no 5xx, and
// an error says what it is.
func FuzzRequests(f *testing.F) {
	app := fuzzApp(f)
	for i := range fuzzed {
		for _, text := range [][3]string{
			{"nobody", "", ""},
			{"*", "1000", "a"},
			{"%3E", "wait=1000&wait=x", "bytes=0-1"},
			{"a%00b", "99999999999999999999", "\u2028"},
			{"..%2f..", "FAILED,COMPLETED", "text/event-stream"},
			{"\xff", "limit=100&status=IN_QUEUE", "wait=3, respond-async"},
			{"é", "-1", "gzip"},
			{strings.Repeat("x", 200), "sse", "Bearer " + adminKey},
			{"../health", "%zz", "RunPod-x"},
		} {
			f.Add(uint8(i), text[0], text[1], text[2])
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, id, query, header string) {
		shape := fuzzed[int(which)%len(fuzzed)]
		plus := strings.NewReplacer(" ", "+")
		fill := strings.NewReplacer("{id}", plus.Replace(id), "{query}", plus.Replace(query))
		path, ask := fill.Replace(shape.path), fill.Replace(shape.query)
		if strings.ContainsFunc(path+ask+header, unicode.IsControl) {
			t.Skip("not one request, or refused before the app sees it; e2e has such by name")
		}
		req := &http.Request{
			Method: shape.method, URL: &url.URL{Path: "/"}, RequestURI: path + "?" + ask, Host: "x", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Authorization": {adminKey}},
		}
		if shape.method == http.MethodPost {
			const body = `{"input":{}}`
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		for _, name := range shape.headers {
			req.Header.Set(name, header)
		}
		resp, err := app.Test(req.WithContext(t.Context()), int(patience.Milliseconds()))
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		proper(t, resp, raw)
	})
}

// proper fails the test unless the answer is a success or says properly what
// is wrong.
func proper(t *testing.T, resp *http.Response, raw []byte) {
	t.Helper()
	var body struct {
		Error     string   `json:"error"`
		Code      web.Code `json:"code"`
		RequestID string   `json:"requestId"`
	}
	if resp.Header.Get("Content-Type") != "application/json" || json.Unmarshal(raw, &body) != nil {
		t.Fatalf("got %d %s %q, want a JSON object", resp.StatusCode, resp.Header.Get("Content-Type"), raw)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		t.Fatalf("got %d %s", resp.StatusCode, raw)
	}
	if resp.StatusCode >= http.StatusBadRequest && (body.Code.Status() != resp.StatusCode || body.Error == "" || body.RequestID == "") {
		t.Fatalf("got %d %s, want a text, a code and a request id", resp.StatusCode, raw)
	}
}

// fuzzApp is the API without limits on a bus of its own.
func fuzzApp(f *testing.F) *fiber.App {
	f.Helper()
	at := backend.New(f)
	service, err := New(Config{Limits: ratelimit.Table{}}, Deps{Queue: at.Queue, Registry: at.Registry, Events: at.Events(f)})
	if err != nil {
		f.Fatal(err)
	}
	app := web.New(web.Config{})
	service.Routes(app)
	return app
}
