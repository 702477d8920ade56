package driver

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"flightline/shared/pod"
)

// What the kernel says of a process in the container, not what was asked for.
func TestAContainerHasNoPrivileges(t *testing.T) {
	t.Parallel()
	d := newDocker(t, DockerConfig{Capabilities: []string{"CHOWN", "NET_BIND_SERVICE"}})
	r := dockerRig(d)
	for id, tt := range map[string]struct {
		asked []string
		want  string // CapEff, in hex
	}{
		"none": {nil, "0000000000000000"},
		"one":  {[]string{"CHOWN"}, "0000000000000001"},
	} {
		spec := r.spec("file", "/proc/self/status")
		spec.Capabilities = tt.asked
		if err := d.Start(t.Context(), Start{PodID: id, Spec: spec}); err != nil {
			t.Fatal(err)
		}
		got := r.ended(t, id).Reason
		for _, line := range []string{"NoNewPrivs:\t1", "CapEff:\t" + tt.want, "CapPrm:\t" + tt.want, "CapBnd:\t" + tt.want} {
			if !strings.Contains(got, line) {
				t.Errorf("%s: want %q in the status of its process:\n%s", id, line, got)
			}
		}
		found, err := d.engine.ContainerInspect(t.Context(), d.container(id), client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if h := found.Container.HostConfig; h.PidsLimit == nil || *h.PidsLimit != MaxPIDs || h.Privileged {
			t.Errorf("%s: got %v processes at most, want %d", id, h.PidsLimit, MaxPIDs)
		}
	}
}

func TestACapabilityNeedsTheOperatorsPermission(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed, asked []string
		want           string // part of the error, "" for none
	}{
		"none allowed":    {nil, []string{"CHOWN"}, "CHOWN is not allowed on this machine; --docker-capabilities allows none"},
		"another allowed": {[]string{"KILL", "CHOWN"}, []string{"CHOWN", "SYS_ADMIN"}, "SYS_ADMIN is not allowed on this machine; --docker-capabilities allows KILL, CHOWN"},
		"ALL of some":     {[]string{"CHOWN"}, []string{"ALL"}, "ALL is not allowed"},
		"allowed":         {[]string{"CHOWN"}, []string{"CHOWN"}, ""},
		"all allowed":     {[]string{"ALL"}, []string{"SYS_ADMIN", "ALL"}, ""},
		"none asked for":  {nil, nil, ""},
	} {
		d := connect(t, DockerConfig{Capabilities: tt.allowed})
		body, err := d.containerOf(Start{PodID: "p1", Spec: pod.Spec{Image: image, Capabilities: tt.asked}})
		if tt.want != "" {
			if !errors.Is(err, pod.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", name, err, tt.want)
			}
			continue
		}
		if err != nil || !slices.Equal(body.HostConfig.CapDrop, []string{"ALL"}) || !slices.Equal(body.HostConfig.CapAdd, tt.asked) {
			t.Errorf("%s: got %+v, %v, want %v and no other", name, body.HostConfig, err, tt.asked)
		}
	}
}

// forbidden are volumes that would hand over the machine, or a folder that is
// not the pods'; want is part of the error.
func forbidden(t *testing.T) (root string, paths map[string]string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(dir, "volumes")
	for _, name := range []string{"volumes/good/deep", "volumes/socket", "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{"etc": "/etc", "everything": "/", "engine": "/var/run", "out": "../outside", "up": "..", "self": ".", "deep": "good/deep", "lost": "absent"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := func(name string) string { return filepath.Join(root, name) }
	return root, map[string]string{
		"/": "directly below", "/etc": "directly below", "/var/run/docker.sock": "directly below", "/var/run": "directly below",
		root: "directly below", filepath.Join(dir, "outside"): "directly below", root + "/../outside": "without '..'", below("good/deep"): "directly below",
		below("etc"): "leads to", below("everything"): "leads to", below("engine"): "leads to", below("out"): "leads to",
		below("up"): "leads to", below("self"): "leads to", below("deep"): "leads to",
		below("lost"): "no such file", below("file"): "not a folder", below("absent"): "no such file",
	}
}

func TestOnlyFoldersBelowTheVolumeRootAreMounted(t *testing.T) {
	root, paths := forbidden(t)
	d := connect(t, DockerConfig{VolumeRoot: root})
	start := func(d *Docker, volume string) error {
		return d.Start(t.Context(), Start{PodID: "p1", Spec: pod.Spec{Image: image, VolumePath: "/data"}, Volume: volume})
	}
	for volume, want := range paths {
		if err := start(d, volume); !errors.Is(err, pod.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", volume, err, want)
		}
	}
	good := filepath.Join(root, "good")
	for name, cfg := range map[string]DockerConfig{
		"no --volume-root":  {},
		"not on this":       {VolumeRoot: root, Host: "tcp://127.0.0.1:1"},
		"no such file":      {VolumeRoot: filepath.Join(root, "absent")},
		"holds the socket ": {VolumeRoot: root, Host: "unix://" + listen(t, filepath.Join(good, "e.sock"))},
	} {
		volume := good
		if cfg.VolumeRoot != root && cfg.VolumeRoot != "" {
			volume = filepath.Join(cfg.VolumeRoot, "a")
		}
		if err := start(connect(t, cfg), volume); !errors.Is(err, pod.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	body, err := d.containerOf(Start{PodID: "p1", Spec: pod.Spec{Image: image, VolumePath: "/data"}, Volume: good})
	if err != nil || len(body.HostConfig.Mounts) != 1 || body.HostConfig.Mounts[0].Source != good {
		t.Errorf("got %+v, %v, want %s mounted", body.HostConfig, err, good)
	}
}

// listen makes a socket as an engine's is.
func listen(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return name
}

// A root that is a link itself is the operator's, and what is below it is good.
func TestTheVolumeRootMayBeALink(t *testing.T) {
	t.Parallel()
	root, _ := forbidden(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	d := newDocker(t, DockerConfig{VolumeRoot: link})
	if err := os.WriteFile(filepath.Join(root, "good", "note"), []byte("from the volume"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := dockerRig(d)
	spec := r.spec("file", "/data/note")
	spec.VolumePath = "/data"
	if err := d.Start(t.Context(), Start{PodID: "p1", Spec: spec, Volume: filepath.Join(link, "good")}); err != nil {
		t.Fatal(err)
	}
	if got := r.ended(t, "p1").Reason; !strings.HasPrefix(got, "from the volume") {
		t.Errorf("got %q, want the note", got)
	}
}
