package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"flightline/shared/client"
)

// request is what the server saw.
type request struct {
	Method, URI, Auth, ContentType, Body string
}

// server answers with what its script says, one entry a request; the last one
// repeats.
type server struct {
	*client.Client
	mu     sync.Mutex
	seen   []request
	script []answer
}

type answer struct {
	status int
	header map[string]string
	body   string
}

func ok(body string) answer { return answer{status: http.StatusOK, body: body} }

func serve(t *testing.T, script ...answer) *server {
	t.Helper()
	s := &server{script: script}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	s.Client = c
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, request{
		Method: r.Method, URI: r.URL.RequestURI(), Auth: r.Header.Get("Authorization"),
		ContentType: r.Header.Get("Content-Type"), Body: string(body),
	})
	next := s.script[min(len(s.seen), len(s.script))-1]
	for name, value := range next.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body)
}

// requests is what came so far.
func (s *server) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func compact(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
