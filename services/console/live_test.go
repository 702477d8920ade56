package console

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/registry"
)

// A page that is quick to load is loaded often enough to be current within a second, and one
// that is not costs at most 2 % of a core while nothing happens.
func TestTimesBetweenLoads(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ took, least, most time.Duration }{
		{time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond},
		{10 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond},
		{100 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second},
		{time.Second, 900 * time.Millisecond, 10 * time.Second},
	} {
		if least, most := pausesAfter(tc.took); least != tc.least || most != tc.most {
			t.Errorf("after %v: got %v to %v, want %v to %v", tc.took, least, most, tc.least, tc.most)
		}
	}
}

// A screen that lists jobs may do so three times in a row; then it waits for its share.
func TestListsAreSpread(t *testing.T) {
	t.Parallel()
	var q listQuota
	now := time.Unix(1000, 0)
	var began []time.Duration
	for range 6 {
		began = append(began, now.Sub(time.Unix(1000, 0)))
		now = now.Add(max(q.wait(now), 300*time.Millisecond))
	}
	for i, want := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 4 * time.Second, 6 * time.Second} {
		if began[i] != want {
			t.Errorf("load %d: got %v, want %v", i, began[i], want)
		}
	}
	if now = now.Add(time.Minute); q.wait(now) > 0 {
		t.Error("after a quiet minute a load has to wait")
	}
}

// An open page says while it cannot be loaded, and loads itself again, which says why, once what
// it shows is gone. It showed an endpoint that was deleted as live.
func TestAnOpenPageIsNotLiveWithoutWhatItShows(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	api := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		answer := "{}"
		if strings.HasPrefix(r.URL.Path, "/v2/") {
			if status.Load() == http.StatusNotFound {
				answer = `{"code":"endpoint_not_found"}`
			}
			w.WriteHeader(int(status.Load()))
		}
		_, _ = io.WriteString(w, answer)
	}, client.WithPatience(0))
	s, err := New(Config{}, Deps{Sessions: &registry.Sessions{}, Actions: newActions(t), Connect: func(string) (API, error) { return API{api, api}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	page := &topic{id: topicID{anAPIKey, "/ui/e/ep/purge"}, watchers: map[*watcher]struct{}{}}
	w := &watcher{changed: make(chan struct{}, 1), sent: map[string]string{}, late: map[*topic]bool{}}
	for _, step := range []struct {
		status int64
		want   string
	}{
		{http.StatusOK, "event: fragment"},
		{http.StatusServiceUnavailable, "event: late\ndata: true\n\n"},
		{http.StatusServiceUnavailable, ""},
		{http.StatusOK, "event: late\ndata: false\n\n"},
		{http.StatusNotFound, signedOut},
		{http.StatusOK, ""},
	} {
		status.Store(step.status)
		s.hub.load(t.Context(), page)
		var text bytes.Buffer
		if err := page.tellChanges(w, &text); err != nil || !strings.HasPrefix(text.String(), step.want) || step.want == "" && text.Len() > 0 {
			t.Errorf("the API answered %d: got %q, %v, want %q", step.status, text.String(), err, step.want)
		}
	}
}
