package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"flightline/shared/pod"
)

// An engine makes a container also if who asked for it does not wait for that.
func TestAStartThatIsGivenUpLeavesNoContainer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var removed atomic.Bool
	engine := imageEngine(func(string) bool { cancel(); return true }, func(*http.Request) {})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/containers/made") {
			removed.Store(true)
		}
		engine.ServeHTTP(w, r)
	}))
	defer server.Close()
	d := connect(t, DockerConfig{Host: "tcp://" + server.Listener.Addr().String()})
	err := d.Start(ctx, Start{PodID: "p", Spec: pod.Spec{Image: "image"}})
	if !errors.Is(err, context.Canceled) || !removed.Load() {
		t.Errorf("got %v, removed %t, want what the engine has made removed", err, removed.Load())
	}
}

// A program that was killed after it made a container has not started it.
func TestAContainerThatWasMadeForAStartIsStarted(t *testing.T) {
	t.Parallel()
	d := newDocker(t, DockerConfig{})
	r := dockerRig(d)
	made := func(podID string, life int) (id string) {
		t.Helper()
		body, err := d.containerOf(Start{PodID: podID, Life: life, Spec: r.spec("run")})
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.engine.ContainerCreate(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		return c.ID
	}
	start := func(podID string) (alone bool) {
		t.Helper()
		err := d.Start(t.Context(), Start{PodID: podID, Life: 1, Spec: r.spec("run"), LeftAlone: func(context.Context) { alone = true }})
		if err != nil {
			t.Fatal(err)
		}
		return alone
	}
	id := made("p1", 1)
	if !start("p1") {
		t.Error("want it said that the container has another environment")
	}
	if x, found := r.find(t, "p1"); !found || !x.Running {
		t.Errorf("got %+v, want it running", x)
	}
	if c, err := d.engine.ContainerInspect(t.Context(), d.container("p1"), client.ContainerInspectOptions{}); err != nil || c.Container.ID != id {
		t.Errorf("got container %s, %v, want %s", c.Container.ID, err, id)
	}
	made("p2", 0)
	if alone := start("p2"); !alone {
		t.Error("want one of an earlier life left alone: its maker may start it")
	}
	if x, found := r.find(t, "p2"); found {
		t.Errorf("got %+v, want it not started", x)
	}
}
