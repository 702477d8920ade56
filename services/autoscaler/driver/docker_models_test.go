package driver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"flightline/shared/pod"
)

// The folder of the models is mounted where RunPod has it, beside the volume. On another
// machine the engine makes it.
func TestAContainerHasTheModelsOfItsMachine(t *testing.T) {
	t.Parallel()
	var made atomic.Pointer[container.HostConfig]
	images := imageEngine(func(string) bool { return true }, func(*http.Request) {})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			var body struct {
				HostConfig container.HostConfig `json:"hostConfig"`
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			made.Store(&body.HostConfig)
		}
		images.ServeHTTP(w, r)
	}))
	defer server.Close()
	d := connect(t, DockerConfig{Host: "tcp://" + server.Listener.Addr().String()})
	start := func(s Start) []mount.Mount {
		t.Helper()
		s.PodID, s.Spec.Image = "p", "image"
		if err := d.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return made.Load().Mounts
	}
	want := []mount.Mount{{Type: mount.TypeBind, Source: "/srv/models/hub", Target: "/runpod-volume/huggingface-cache/hub", BindOptions: &mount.BindOptions{CreateMountpoint: true}}}
	if diff := cmp.Diff(want, start(Start{ModelCache: "/srv/models/hub"})); diff != "" {
		t.Error(diff)
	}
	if got := start(Start{}); len(got) > 0 {
		t.Errorf("without models: got %v, want no mounts", got)
	}

	root, _ := forbidden(t)
	volume := root + "/good"
	local := connect(t, DockerConfig{VolumeRoot: root})
	got, err := local.mounts(Start{ModelCache: "/srv/models/hub", Volume: volume, Spec: pod.Spec{VolumePath: "/runpod-volume"}})
	want = []mount.Mount{{Type: mount.TypeBind, Source: volume, Target: "/runpod-volume"}, {Type: mount.TypeBind, Source: "/srv/models/hub", Target: pod.ModelCachePath, BindOptions: &mount.BindOptions{}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("with a volume: %v, %s", err, diff)
	}
	if !d.Remote() || local.Remote() {
		t.Errorf("got %v and %v, want the engine behind tcp remote", d.Remote(), local.Remote())
	}
}
