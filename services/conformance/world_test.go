package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A 503 while --make sets up is tried again; if it came although the endpoint was made, 409 follows.
func TestMakeGoesOnAfterA503(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]int{"it was not made": http.StatusOK, "it was made": http.StatusConflict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := []int{http.StatusServiceUnavailable, second}
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/endpoints" {
					rw.WriteHeader(made[0])
					made = made[1:]
				}
				_, _ = io.WriteString(rw, `{"id":"w","token":"t"}`)
			}))
			defer server.Close()
			w := &world{cfg: Config{BaseURL: server.URL, RestURL: server.URL}, http: server.Client()}
			if err := w.makeEndpoint(t.Context()); err != nil || w.made == "" {
				t.Errorf("got %v, endpoint %q, want one", err, w.made)
			}
		})
	}
}

func TestMakeFailsAtAnIDThatIsTaken(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	w := &world{cfg: Config{BaseURL: server.URL, RestURL: server.URL}, http: server.Client()}
	if err := w.makeEndpoint(t.Context()); err == nil || w.made != "" {
		t.Errorf("got %v, endpoint %q, want an error and none", err, w.made)
	}
}
