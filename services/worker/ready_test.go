package worker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A wrong address, port or key is seen in the log of the worker that waits.
func TestTheLogSaysWhyTheModelServerIsNotReady(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathHealth {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(refuses.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for url, want := range map[string]string{
		refuses.URL: `why="GET /v1/models: 401 Unauthorized"`,
		gone.URL:    `why="GET /health: connect: connection refused"`,
	} {
		var log strings.Builder
		u, err := newUpstream(Upstream{URL: url}, 1, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		u.probeSignal.Send() // the second probe is due at once
		u.wake = func(context.Context) error { cancel(); return nil }
		if u.awaitReady(ctx) {
			t.Fatalf("%s counts as ready", url)
		}
		if got := log.String(); !strings.Contains(got, want) || strings.Count(got, "waiting") != 1 {
			t.Errorf("got %s, want once %s", got, want)
		}
	}
}
