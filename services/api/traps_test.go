package api

import (
	"net/http"
	"strings"
	"testing"
)

// What clients in the field send, and what each would break on.
func TestRequestsOfClientsInTheFieldAreUnderstood(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	for _, contentType := range []string{
		"", "application/json", "application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "multipart/form-data", "application/octet-stream", "nonsense",
	} {
		req := s.request("POST", "/ep/run", strings.NewReader(someInput))
		req.Header.Set("Content-Type", contentType)
		if got := s.send(req); got.status != http.StatusOK || got.id() == "" {
			t.Errorf("content type %q: got %d %s", contentType, got.status, got.raw)
		}
	}
	for _, test := range []struct {
		method, path string
		status       int
	}{
		{"GET", "//ep/requests", 200},
		{"GET", "/ep//requests?limit=1", 200},
		{"GET", "/ep/requests/", 200},
		{"HEAD", "/ep/requests", 200},
		{"POST", "/ep/requests", 405},
		{"DELETE", "/ep/requests", 405},
		{"POST", "//ep//run", 200},
		{"POST", "/ep/status//" + id, 200},
		{"GET", "//ep/status-sync/" + id + "?wait=1000", 200},
	} {
		body := ""
		if strings.HasSuffix(test.path, "run") {
			body = someInput
		}
		req := s.request(test.method, test.path, strings.NewReader(body))
		send := s.send
		if test.method == "HEAD" {
			send = s.sendLoosely
		}
		if got := send(req); got.status != test.status {
			t.Errorf("%s %s: got %d %s, want %d", test.method, test.path, got.status, got.raw, test.status)
		}
	}
}
