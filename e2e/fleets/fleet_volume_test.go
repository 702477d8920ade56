package fleets

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"flightline/e2e/require"
	"flightline/shared/pod"
)

// A key with control makes volumes and pods, and is not root on the host for it:
// a folder outside --volume-root is refused when it is named, and a link out of
// it when the pod starts.
func TestAPodGetsNoFolderOutsideTheVolumeRoot(t *testing.T) {
	t.Parallel()
	engine, err := client.New(client.WithHost(client.DefaultDockerHost))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if _, err := engine.Ping(t.Context(), client.PingOptions{}); err != nil {
		require.Skip(t, "docker", "no engine answers: "+err.Error())
	}
	root := t.TempDir()
	for name, to := range map[string]string{"host": "/", "engine": "/var/run"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	f, _ := fleetDev(t, "FLIGHTLINE_DRIVERS=docker", "FLIGHTLINE_VOLUME_ROOT="+root)
	for _, path := range []string{"/", "/etc", "/var/run/docker.sock", root, root + "/../x", root + "/a/b"} {
		status, answer := f.ask(http.MethodPost, "/v1/networkvolumes", map[string]any{"name": "v", "size": 1, "path": path})
		if status != http.StatusBadRequest || !strings.Contains(string(answer), "path must be") {
			t.Errorf("%s: got %d %s, want 400 for the path", path, status, answer)
		}
	}
	for name, want := range map[string]string{"host": `leads to "/"`, "engine": "leads to"} {
		var volume, made struct{ ID string }
		f.rest(http.MethodPost, "/v1/networkvolumes", map[string]any{"name": "v", "size": 1, "path": filepath.Join(root, name)}, &volume)
		f.rest(http.MethodPost, "/v1/pods", map[string]any{"imageName": "absent:1", "networkVolumeId": volume.ID, "volumeMountPath": "/data"}, &made)
		f.await("the refusal of "+name, func() string {
			p, err := f.registry.Pods.Get(t.Context(), made.ID)
			if err == nil && p.Status == pod.Exited && strings.Contains(p.Change, want) {
				return ""
			}
			return fmt.Sprintf("%s (%s), %v", p.Status, p.Change, err)
		})
	}
	var made struct{ ID string }
	f.rest(http.MethodPost, "/v1/pods", map[string]any{"imageName": "absent:1", "capabilities": []string{"SYS_ADMIN"}}, &made)
	f.await("the refusal of a capability", func() string {
		p, err := f.registry.Pods.Get(t.Context(), made.ID)
		if err == nil && p.Status == pod.Exited && strings.Contains(p.Change, "SYS_ADMIN is not allowed on this machine") {
			return ""
		}
		return fmt.Sprintf("%s (%s), %v", p.Status, p.Change, err)
	})
}
