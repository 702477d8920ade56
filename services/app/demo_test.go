package app

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/client"
)

// A store that does not answer for longer than the first calls may last must not
// end dev: a soak ended so when a killed host came back under load.
func TestAStoreThatIsSlowAtTheStartDoesNotEndDev(t *testing.T) {
	const timeout = 50 * time.Millisecond
	var calls atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) <= 3 {
			<-r.Context().Done() // no answer within the timeout
			return
		}
		_, _ = w.Write([]byte(`[]`))
	}))
	defer api.Close()
	var log bytes.Buffer
	tr := &demo{client: clientOf(t, api.URL), log: slog.New(slog.NewTextHandler(&log, nil))}
	list := func(ctx context.Context) error {
		_, err := tr.client.Endpoints().List(ctx)
		return err
	}
	if err := tr.retryCall(t.Context(), timeout, list); err != nil {
		t.Fatalf("got %v, want an answer after calls without one", err)
	}
	if !bytes.Contains(log.Bytes(), []byte("asking again")) {
		t.Errorf("got the log %q, want a line that the API does not answer yet", log.String())
	}
}

// An answer that says no is no reason to ask again.
func TestARefusalOfTheFirstCallEndsDev(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer api.Close()
	tr := &demo{client: clientOf(t, api.URL), log: slog.New(slog.DiscardHandler)}
	if err := tr.ready(t.Context()); err == nil {
		t.Fatal("got no error for an answer of 403")
	}
}

// What is shown to try works where dev was started: a folder of --data is named.
func TestWhatToTryNamesAnotherDataFolder(t *testing.T) {
	for data, want := range map[string][]string{
		".flightline":   {"  ./fl run echo", "$(./fl env)", "--wait\n", "env)"},
		"./.flightline": {"--wait\n", "env)"},
		"/srv/my jobs":  {"--wait --data '/srv/my jobs'\n", "env --data '/srv/my jobs')"},
	} {
		got := (&demo{data: data, url: "http://h", program: "./fl"}).next()
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %q, want %q in it", data, got, part)
			}
		}
	}
}

func clientOf(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, "key")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
