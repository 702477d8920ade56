package driver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// silentEngine has a container that runs, and several in these states of which it says no
// more than that, as while the start of one hangs. asked counts the questions about those.
func silentEngine(t *testing.T, asked *atomic.Int32, states ...string) *Docker {
	t.Helper()
	const summary = `{"Id":%q,"State":%q,"Labels":{"flightline.pod":%[1]q,"flightline.gpus":"GPU-1"},"Ports":[{"PrivatePort":80,"PublicPort":4000,"Type":"tcp"}]}`
	all := []string{fmt.Sprintf(summary, "good", "running")}
	for _, state := range states {
		all = append(all, fmt.Sprintf(summary, state, state))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.47")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = fmt.Fprintf(w, "[%s]", strings.Join(all, ","))
		case strings.HasSuffix(r.URL.Path, "/containers/good/json"):
			_, _ = w.Write([]byte(`{"Id":"good","State":{"Status":"running"}}`))
		default:
			asked.Add(1)
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	return connect(t, DockerConfig{Host: "tcp://" + server.Listener.Addr().String(), callTimeout: 10 * time.Second})
}

func TestAContainerOfWhichTheEngineSaysNothingHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	d := silentEngine(t, &asked, "created", "paused", "exited")
	ports, gpus := map[int]int{80: 4000}, []string{"GPU-1"}
	want := []Instance{
		{PodID: "created", Running: true, GPUs: gpus, PublicIP: "127.0.0.1", PortMappings: ports},
		{PodID: "exited", Code: -1, Reason: "the engine does not say how it ended", GPUs: gpus},
		{PodID: "good", Running: true, GPUs: gpus},
		{PodID: "paused", Running: true, GPUs: gpus, PublicIP: "127.0.0.1", PortMappings: ports},
	}
	for range 2 {
		got, err := d.List(t.Context())
		slices.SortFunc(got, func(a, b Instance) int { return strings.Compare(a.PodID, b.PodID) })
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("got %v: %s", err, diff)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want once for each", n)
	}
}

func TestAStopThatTheEngineDoesNotAnswerEnds(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	d := silentEngine(t, &asked)
	if err := d.Stop(t.Context(), "p", 0); !errors.Is(err, ErrUnavailable) || asked.Load() == 0 {
		t.Errorf("got %v, want ErrUnavailable, which is tried again", err)
	}
}
