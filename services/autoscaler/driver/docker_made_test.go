package driver

import (
	"context"
	"testing"

	"github.com/moby/moby/client"
)

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
