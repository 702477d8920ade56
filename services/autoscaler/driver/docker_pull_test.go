package driver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/pod"
)

// imageEngine is an engine that starts every container whose image it has: has says so, by
// the container's name. pull answers a request to fetch an image.
func imageEngine(has func(name string) bool, pull func(*http.Request)) http.Handler {
	engine := http.NewServeMux()
	engine.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.47") })
	engine.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch _, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case path == "images/create":
			pull(r)
		case path == "containers/create" && has(r.URL.Query().Get("name")):
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id":"made"}`))
		case strings.HasSuffix(path, "/start"):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"no such thing"}`))
		}
	})
	return engine
}

func TestImagesThatTakeLongToFetchKeepNoContainerWaiting(t *testing.T) {
	t.Parallel()
	const many = maxConcurrentStarts + 4
	fetched := make(chan string, many)
	engine := httptest.NewServer(imageEngine(
		func(name string) bool { return !strings.Contains(name, "slow") },
		func(r *http.Request) {
			fetched <- r.URL.Query().Get("fromImage")
			<-r.Context().Done()
		}))
	defer engine.Close()
	d := connect(t, DockerConfig{Host: "tcp://" + engine.Listener.Addr().String()})
	ctx, cancel := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	defer starts.Wait()
	defer cancel()
	start := func(id string) error {
		s := Start{PodID: id}
		s.Spec.Image = "image"
		return d.Start(ctx, s)
	}
	for i := range many {
		starts.Go(func() {
			if err := start(fmt.Sprint("slow", i)); err == nil {
				t.Error("no image: got nil, want an error")
			}
		})
	}
	for range many {
		select {
		case <-fetched:
		case <-time.After(patience):
			t.Fatal("an image is not even asked for")
		}
	}
	if err := start("quick"); err != nil {
		t.Errorf("the image is there: got %v, want it started", err)
	}
}

func TestTheEngineSaysWhichPhaseAStartIsIn(t *testing.T) {
	t.Parallel()
	var there atomic.Bool // the image
	server := httptest.NewServer(imageEngine(func(string) bool { return there.Load() }, func(*http.Request) { there.Store(true) }))
	defer server.Close()
	d := connect(t, DockerConfig{Host: "tcp://" + server.Listener.Addr().String()})
	for _, want := range [][]pod.Phase{{pod.Pulling, pod.Starting}, {pod.Starting}} { // then the image is there
		var got []pod.Phase
		s := Start{PodID: "p", Spec: pod.Spec{Image: "image"}, Entered: func(_ context.Context, phase pod.Phase) { got = append(got, phase) }}
		if err := d.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
