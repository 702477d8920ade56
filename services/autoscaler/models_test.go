package autoscaler

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/testenv"
)

// write makes files of this size.
func write(t *testing.T, folder string, files map[string]int) {
	t.Helper()
	for name, size := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestModelsThatAreComplete(t *testing.T) {
	hub := t.TempDir()
	write(t, hub, map[string]int{
		"models--Qwen--Qwen3-8B/blobs/aa":              70,
		"models--Qwen--Qwen3-8B/blobs/bb":              30,
		"models--Qwen--Qwen3-8B/refs/main":             40,
		"models--gpt2/snapshots/r1/config.json":        5, // where there are no links
		"models--being--loaded/blobs/cc.incomplete":    10,
		"models--being--loaded/snapshots/r1/config":    1,
		"models--no--revision/blobs/dd":                10,
		"models--lost--file/blobs/ee":                  10,
		"models--a--b--c/snapshots/r1/config":          1, // no name has these hyphens
		"datasets--some--data/snapshots/r1/config":     1,
		".locks/models--no--revision/dd.lock":          0,
		"models--only--diffusers/snapshots/r1/vae/one": 1,
		"models--file": 1,
	})
	for name, target := range map[string]string{
		"models--Qwen--Qwen3-8B/snapshots/r1/model": "../../blobs/aa",
		"models--lost--file/snapshots/r1/model":     "../../blobs/absent",
	} {
		path := filepath.Join(hub, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readModels(hub)
	want := []pod.Model{{Name: "Qwen/Qwen3-8B", Bytes: 100}, {Name: "gpt2"}, {Name: "only/diffusers"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := readModels(filepath.Join(hub, "absent")); err != nil || got != nil {
		t.Errorf("no folder: got %v, %v, want none", got, err)
	}
	if _, err := readModels(filepath.Join(hub, "models--file")); err == nil {
		t.Error("a file: got no error")
	}
}

// modelHost runs an autoscaler whose machine has these GPUs, and a cache of its own.
func (s *env) modelHost(gpus []pod.GPU, e driver.Driver) (folder string) {
	s.t.Helper()
	folder = filepath.Join(s.t.TempDir(), "models")
	s.autoscalerOf(Config{GPUs: func() ([]pod.GPU, error) { return gpus, nil }, ModelCache: folder}, e)
	return folder
}

// machineHas waits until the machine reports these models.
func (s *env) machineHas(id string, names ...string) {
	s.t.Helper()
	testenv.EventuallyNone(s.t, func() string {
		machines, err := s.registry.GPUs.Machines(s.t.Context())
		for _, m := range machines {
			if m.ID == id && len(m.Models) == len(names) && len(pod.MissingModels(names, m.Models)) == 0 {
				return ""
			}
		}
		return fmt.Sprintf("got %+v, %v, want %s with %v", machines, err, id, names)
	})
}

// The first worker of an endpoint downloads its model. The next ones are started where
// it is, on a GPU or, of machines with as many pods, without one.
func TestTheNextWorkerIsStartedWhereTheModelIs(t *testing.T) {
	t.Parallel()
	for name, gpus := range map[string]int{"with a GPU": 1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openEnv(t, 0)
			a, b := s.engine("a"), s.engine("b")
			folders := map[string]string{"a": s.modelHost(cards("a", 1), a), "b": s.modelHost(cards("b", 1), b)}
			s.machineHas("a")
			s.machineHas("b")
			s.endpoint("ep", bounds(1, 1), func(e *endpoint.Endpoint) { e.Fleet.GPUs, e.Fleet.ModelCache = gpus, []string{"m/n"} })
			first := s.status("ep-0-1", pod.Running)
			if first.MachineID != "a" || !slices.Equal(first.MissingModels, []string{"m/n"}) {
				t.Errorf("got machine %s without %v, want a, of which nobody knows that it has the model", first.MachineID, first.MissingModels)
			}
			s.update("ep", bounds(0, 0))
			s.status("ep-0-1", pod.Terminated)
			write(t, filepath.Join(folders["b"], "hub"), map[string]int{"models--m--n/snapshots/r1/config.json": 2, "models--m--n/blobs/x": 10})
			s.machineHas("b", "m/n")
			s.update("ep", bounds(1, 1))
			second := s.status("ep-0-2", pod.Running)
			if second.MachineID != "b" || len(second.MissingModels) > 0 {
				t.Errorf("got machine %s without %v, want b, which has the model", second.MachineID, second.MissingModels)
			}
			testenv.EventuallyNone(t, func() string {
				if len(b.pods()) == 0 {
					return "no worker on b"
				}
				return ""
			})
			hub := filepath.Join(folders["b"], "hub")
			if got := b.with("ep-0-2"); got.ModelCache != hub || got.Env["HF_HUB_CACHE"] != hub || got.Env["HUGGINGFACE_HUB_CACHE"] != hub || got.Env["HF_HOME"] != "" {
				t.Errorf("got folder %q, environment %v, want %s", got.ModelCache, got.Env, hub)
			}
			if info, err := os.Stat(filepath.Join(folders["a"], "hub")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
				t.Errorf("got %v, %v, want a folder to which each worker can write", info.Mode(), err)
			}
			if info, err := os.Stat(folders["a"]); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("got %v, %v, want it to be the owner's", info.Mode(), err)
			}
		})
	}
}

func TestAFolderThatCannotBeMadeEndsThePod(t *testing.T) {
	s := newEnv(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.autoscalerOf(Config{ModelCache: filepath.Join(file, "models")}, s.engine("m"))
	s.pod("one", func(p *pod.Pod) { p.Spec.ModelCache = []string{"m/n"} })
	if p := s.told("one", "it could not be started: model cache (--model-cache-folder): mkdir "+file); p.Status != pod.Exited {
		t.Errorf("got %s, want EXITED", p.Status)
	}
	s.pod("two", func(*pod.Pod) {})
	s.status("two", pod.Running)
}

// A worker is not started with a cache that is a file, or a link to a folder that is not there.
func TestACacheThatIsNoFolderEndsThePod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		hub  func(path string) error
		want string
	}{
		"a file":            {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "is no folder"},
		"a link to nothing": {func(path string) error { return os.Symlink("absent", path) }, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			hub := filepath.Join(folder, hubFolder)
			if err := tc.hub(hub); err != nil {
				t.Fatal(err)
			}
			a := &agent{Service: &Service{cfg: Config{ModelCache: folder}}}
			if got, err := a.modelCache(pod.Spec{ModelCache: []string{"m/n"}}); err == nil || !strings.Contains(err.Error(), hub) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, %v, want that %s %s", got, err, hub, tc.want)
			}
		})
	}
}

func TestTheEnvironmentOfTheModelCache(t *testing.T) {
	for name, tt := range map[string]struct {
		driver pod.Driver
		hub    string
		own    map[string]string
		want   map[string]string
	}{
		"none":                 {pod.Process, "", map[string]string{"A": "1"}, map[string]string{"A": "1"}},
		"a process":            {pod.Process, "/m/hub", nil, map[string]string{"HF_HUB_CACHE": "/m/hub", "HUGGINGFACE_HUB_CACHE": "/m/hub"}},
		"a container":          {pod.Docker, "/m/hub", nil, map[string]string{"HF_HUB_CACHE": pod.ModelCachePath, "HUGGINGFACE_HUB_CACHE": pod.ModelCachePath}},
		"what the pod sets":    {pod.Process, "/m/hub", map[string]string{"HF_HUB_CACHE": "/own"}, map[string]string{"HF_HUB_CACHE": "/own", "HUGGINGFACE_HUB_CACHE": "/m/hub"}},
		"what others are told": {pod.Docker, "/m/hub", map[string]string{"A": "1"}, map[string]string{"A": "1", "HF_HUB_CACHE": pod.ModelCachePath, "HUGGINGFACE_HUB_CACHE": pod.ModelCachePath}},
	} {
		if got := withModelCache(tt.own, tt.driver, tt.hub); !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
