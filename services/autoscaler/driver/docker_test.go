package driver

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

func dockerRig(d *Docker) rig {
	return rig{driver: d, spec: func(args ...string) pod.Spec {
		return pod.Spec{Image: image, Entrypoint: []string{"/pod"}, Command: args}
	}}
}

func TestDockerConforms(t *testing.T) {
	t.Parallel()
	for name, claim := range conform {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim(t, dockerRig(newDocker(t, DockerConfig{})))
		})
	}
}

func TestAContainerIsWhatItsSpecSays(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	volume := filepath.Join(root, "v1")
	d := newDocker(t, DockerConfig{VolumeRoot: root})
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "note"), []byte("from the volume"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := dockerRig(d)
	spec := r.spec("listen", "8080")
	spec.Ports, spec.VCPUs, spec.MemoryGB, spec.VolumePath = []string{"8080/http"}, 0.5, 0.0625, "/data"
	if err := d.Start(t.Context(), Start{PodID: "p1", Endpoint: "ep", Spec: spec, Volume: volume}); err != nil {
		t.Fatal(err)
	}
	x, _ := r.find(t, "p1")
	if x.PublicIP != "127.0.0.1" || x.PortMappings[8080] == 0 {
		t.Errorf("got %+v, want port 8080 on loopback", x)
	}
	testenv.Eventually(t, "the port answers", func() bool {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(x.PublicIP, strconv.Itoa(x.PortMappings[8080])), time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		hello, _ := io.ReadAll(c)
		return string(hello) == "hello\n"
	})
	found, err := d.engine.ContainerInspect(t.Context(), d.container("p1"), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := found.Container.HostConfig
	if h.NanoCPUs != 5e8 || h.Memory != 64<<20 || h.RestartPolicy.Name != container.RestartPolicyDisabled {
		t.Errorf("got %+v, want half a CPU, 64 MiB and no restart", h)
	}
	want := map[string]string{podLabel: "p1", endpointLabel: "ep", lifeLabel: "0", installationLabel: d.cfg.Installation}
	if diff := cmp.Diff(want, found.Container.Config.Labels); diff != "" {
		t.Error(diff)
	}
	spec.Command, spec.Ports = []string{"file", "/data/note"}, nil
	if err := d.Start(t.Context(), Start{PodID: "p2", Spec: spec, Volume: volume}); err != nil {
		t.Fatal(err)
	}
	if got := r.ended(t, "p2").Reason; !strings.HasPrefix(got, "from the volume") {
		t.Errorf("got %q", got)
	}
}

func TestContainersOutliveTheDriverAndAreNobodyElses(t *testing.T) {
	t.Parallel()
	first := newDocker(t, DockerConfig{})
	dockerRig(first).start(t, "p1", "run")
	again := connect(t, first.cfg)
	if x, found := dockerRig(again).find(t, "p1"); !found || !x.Running || x.Endpoint != "ep" {
		t.Errorf("got %+v %v, want it running", x, found)
	}
	other := newDocker(t, DockerConfig{})
	if all, err := other.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v, want none of another installation", all, err)
	}
	dockerRig(again).stop(t, "p1", patience)
	if x, _ := dockerRig(first).find(t, "p1"); x.Running {
		t.Errorf("got %+v, want it stopped for both", x)
	}
}

func TestStartsByTwoDriversStartOne(t *testing.T) {
	t.Parallel()
	first := newDocker(t, DockerConfig{})
	drivers := []*Docker{first, connect(t, first.cfg)}
	var starts sync.WaitGroup
	for i := range 6 {
		starts.Go(func() {
			if err := drivers[i%2].Start(t.Context(), Start{PodID: "p1", Spec: dockerRig(first).spec("run")}); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	testenv.Eventually(t, "it runs", func() bool { x, _ := dockerRig(first).find(t, "p1"); return x.Running })
}

func TestAnImageThatIsNotThereIsRefused(t *testing.T) {
	d := newDocker(t, DockerConfig{})
	// Nothing listens there: fetching fails at once.
	err := d.Start(t.Context(), Start{PodID: "p1", Spec: pod.Spec{Image: "127.0.0.1:9/flightline/absent:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:9/flightline/absent:1") || errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want an error that names the image", err)
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v, want none", all, err)
	}
}

func TestAnEngineThatIsAwayIsUnavailable(t *testing.T) {
	d := connect(t, DockerConfig{Host: "unix://" + filepath.Join(t.TempDir(), "absent.sock")})
	_, list := d.List(t.Context())
	_, _, machine := d.Machine(t.Context())
	for what, err := range map[string]error{
		"list": list, "machine": machine,
		"start":  d.Start(t.Context(), Start{PodID: "p1", Spec: pod.Spec{Image: image}}),
		"stop":   d.Stop(t.Context(), "p1", time.Second),
		"forget": d.Forget(t.Context(), "p1"),
	} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", what, err)
		}
	}
}

func TestWhatCannotBeAContainerIsRefused(t *testing.T) {
	d := connect(t, DockerConfig{})
	for name, spec := range map[string]pod.Spec{
		"no image": {}, "no port": {Image: image, Ports: []string{"0/tcp"}}, "no protocol": {Image: image, Ports: []string{"80/udp"}},
	} {
		if err := d.Start(t.Context(), Start{PodID: "p1", Spec: spec}); !errors.Is(err, pod.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if _, err := NewDocker(DockerConfig{Host: "nonsense"}); err == nil {
		t.Error("got no error for an engine that has no address")
	}
}

func TestInstanceOf(t *testing.T) {
	const began = "2026-01-02T03:04:05.6Z"
	labels := map[string]string{podLabel: "p1", endpointLabel: "ep", gpusLabel: "GPU-1,GPU-2"}
	for name, tt := range map[string]struct {
		state container.State
		want  Instance
	}{
		"runs":          {container.State{Status: container.StateRunning, StartedAt: began}, Instance{Running: true, PortMappings: map[int]int{}}},
		"paused":        {container.State{Status: container.StatePaused, StartedAt: began}, Instance{Running: true, PortMappings: map[int]int{}}},
		"ended":         {container.State{Status: container.StateExited, ExitCode: 3, StartedAt: began}, Instance{Code: 3}},
		"by a signal":   {container.State{Status: container.StateExited, ExitCode: 143, StartedAt: began}, Instance{Code: -1}},
		"255 is a code": {container.State{Status: container.StateExited, ExitCode: 255, StartedAt: began}, Instance{Code: 255}},
		"no memory":     {container.State{Status: container.StateExited, ExitCode: 137, OOMKilled: true, StartedAt: began}, Instance{Code: -1, Reason: "killed: out of memory"}},
		"engine's word": {container.State{Status: container.StateExited, ExitCode: 127, Error: "no such file", StartedAt: began}, Instance{Code: 127, Reason: "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.PodID, tt.want.Endpoint, tt.want.Started, tt.want.GPUs = "p1", "ep", instant(began), []string{"GPU-1", "GPU-2"}
			got := instanceOf(container.Summary{Labels: labels}, container.InspectResponse{State: &tt.state, NetworkSettings: &container.NetworkSettings{}})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResources(t *testing.T) {
	d := &Docker{cdi: []string{"nvidia.com/gpu=GPU-3"}}
	nvidia := func(uuid string) pod.GPU { return pod.GPU{UUID: uuid, Vendor: pod.NVIDIA} }
	got := d.resources(Start{Spec: pod.Spec{GPUs: 3, VCPUs: 1.5, MemoryGB: 2}, GPUs: []pod.GPU{nvidia("GPU-1"), nvidia("GPU-2"), nvidia("GPU-3")}})
	want := []container.DeviceRequest{
		{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=GPU-3"}},
		{DeviceIDs: []string{"GPU-1", "GPU-2"}, Capabilities: [][]string{{"gpu"}}},
	}
	if diff := cmp.Diff(want, got.DeviceRequests); got.NanoCPUs != 15e8 || got.Memory != 2<<30 || diff != "" {
		t.Errorf("got %+v, %s", got, diff)
	}
	body, err := d.containerOf(Start{Spec: pod.Spec{Image: "x"}, GPUs: []pod.GPU{nvidia("GPU-1"), nvidia("GPU-2")}})
	if err != nil || body.Config.Labels[gpusLabel] != "GPU-1,GPU-2" {
		t.Errorf("got %v, %v, want the GPUs in a label", body.Config, err)
	}
	if got := d.resources(Start{}); got.NanoCPUs != 0 || got.Memory != 0 || len(got.DeviceRequests) != 0 {
		t.Errorf("got %+v, want no limits", got)
	}
	if got := d.resources(Start{GPUs: []pod.GPU{{UUID: "GPU-a", Vendor: pod.AMD}}}); len(got.Devices) != 2 || got.Devices[0].PathOnHost != "/dev/kfd" {
		t.Errorf("got %+v, want AMD's devices", got)
	}
}
