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

// hangingEngine has every image but those named slow, which never come. It says
// which are being fetched.
func hangingEngine(fetched chan<- string) http.Handler {
	engine := http.NewServeMux()
	engine.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.47") })
	engine.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch _, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case path == "images/create":
			fetched <- r.URL.Query().Get("fromImage")
			<-r.Context().Done()
		case path == "containers/create" && !strings.Contains(r.URL.Query().Get("name"), "slow"):
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
	engine := httptest.NewServer(hangingEngine(fetched))
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
	engine := http.NewServeMux()
	engine.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.47") })
	engine.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch _, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case path == "images/create":
			there.Store(true)
		case path == "containers/create" && there.Load():
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id":"made"}`))
		case strings.HasSuffix(path, "/start"):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"no such thing"}`))
		}
	})
	server := httptest.NewServer(engine)
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
