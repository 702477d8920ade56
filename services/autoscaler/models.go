package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/placement"
	"flightline/shared/pod"
	"flightline/shared/retry"
)

const (
	// modelsInterval is the pause between two looks at the models of this machine.
	modelsInterval = 5 * time.Second
	// maxModels bounds the models that a machine reports.
	maxModels = 500
	// hubFolder is that of the models within the folder of the cache.
	hubFolder = "hub"
)

// hub is the folder of the models of this machine, "" for none.
func (a *agent) hub() string {
	if a.cfg.ModelCache == "" {
		return ""
	}
	return filepath.Join(a.cfg.ModelCache, hubFolder)
}

// remote reports whether the folders of this program are not those of the pods' machine.
func (a *agent) remote() bool {
	d, ok := a.driver.(driver.Remote)
	return ok && d.Remote()
}

// watchModels looks at the models of this machine until ctx ends. A file system that does
// not answer holds up nothing but this.
func (a *agent) watchModels(ctx context.Context) {
	if a.hub() == "" || a.remote() {
		return
	}
	for failed := false; ctx.Err() == nil; {
		found, err := readModels(a.hub())
		if err != nil && !failed {
			a.log.WarnContext(ctx, "models of this machine not read, they stay as they were", "folder", a.hub(), "err", err)
		}
		if failed = err != nil; !failed {
			a.mu.Lock()
			a.cached = found
			a.mu.Unlock()
		}
		_ = retry.Sleep(ctx, modelsInterval) // the loop ends with ctx
	}
}

// models are those that the machine has, as they were last read.
func (a *agent) models() []pod.Model {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cached
}

// modelCache is the folder of the models on the machine of a pod that uses them, "" for a
// pod without models. It makes the folder if it is not there: only the owner of this
// program reaches it, and containers of any user can write to the folder hub in it.
func (a *agent) modelCache(spec pod.Spec) (string, error) {
	if len(spec.ModelCache) == 0 {
		return "", nil
	}
	hub := a.hub()
	if hub == "" || a.remote() {
		return hub, nil // the engine makes it
	}
	info, err := os.Stat(hub)
	if err != nil {
		info, err = makeHub(hub)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", hub)
	}
	if err != nil {
		return "", fmt.Errorf("model cache (--model-cache-folder): %w", err)
	}
	return hub, nil
}

// makeHub makes the folder, unless another one has just made it.
func makeHub(hub string) (fs.FileInfo, error) {
	err := os.MkdirAll(filepath.Dir(hub), 0o700)
	if err == nil {
		err = os.Mkdir(hub, 0o700)
	}
	if err == nil {
		err = os.Chmod(hub, 0o777|fs.ModeSticky) // whatever the umask is
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.Stat(hub)
}

// withModelCache is the environment with where the libraries of a pod find the models of
// the machine, whose folder is hub, and put others. What the pod sets itself stays.
// HF_HOME is not set: a token would be kept there, for all pods of the machine.
func withModelCache(env map[string]string, d pod.Driver, hub string) map[string]string {
	if hub == "" {
		return env
	}
	if d == pod.Docker {
		hub = pod.ModelCachePath
	}
	all := map[string]string{"HF_HUB_CACHE": hub, "HUGGINGFACE_HUB_CACHE": hub}
	maps.Copy(all, env)
	return all
}

// readModels returns the models of the cache that are complete, at most maxModels, by name: those
// that have a revision with a file, and no file that is being downloaded. A folder that
// is not there has none. It reads names and sizes only.
func readModels(hub string) ([]pod.Model, error) {
	entries, err := os.ReadDir(hub)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var models []pod.Model
	for _, e := range entries {
		name, isModel := strings.CutPrefix(e.Name(), "models--")
		name = strings.Replace(name, "--", "/", 1)
		if !isModel || !pod.ValidModel(name) {
			continue
		}
		folder := filepath.Join(hub, e.Name())
		bytes, loading := blobs(filepath.Join(folder, "blobs"))
		if !loading && hasRevision(filepath.Join(folder, "snapshots")) {
			models = append(models, pod.Model{Name: name, Bytes: bytes})
		}
	}
	slices.SortFunc(models, func(a, b pod.Model) int { return strings.Compare(a.Name, b.Name) })
	return models[:min(len(models), maxModels)], nil
}

// blobs is the size of the files, and whether one is being downloaded.
func blobs(folder string) (bytes int64, loading bool) {
	entries, _ := os.ReadDir(folder) // none where the cache has no links
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".incomplete") {
			return 0, true
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes, false
}

// hasRevision reports whether a revision has a file that is there.
func hasRevision(folder string) bool {
	revisions, _ := os.ReadDir(folder) // a model without revisions has none
	for _, r := range revisions {
		files, _ := os.ReadDir(filepath.Join(folder, r.Name()))
		for _, f := range files {
			if _, err := os.Stat(filepath.Join(folder, r.Name(), f.Name())); err == nil {
				return true
			}
		}
	}
	return false
}

// otherMachines are the machines without one, if there are others: where the last worker
// failed at its start the next one may too, for want of space, say.
func otherMachines(machines []string, but string) []string {
	if others := slices.DeleteFunc(slices.Clone(machines), func(id string) bool { return id == but }); len(others) > 0 {
		return others
	}
	return machines
}

// spread chooses a machine for each of n pods: always the one with the fewest running, of
// several the one that lacks the fewest models. Load is how many pods run, and missing
// which models are missing, by machine; machines must not be empty. Without GPUs nothing
// says how much fits on a machine, so load is first.
func spread(machines []string, load map[string]int, missing map[string][]string, n int) []placement.Placement {
	running := map[string]int{}
	maps.Copy(running, load)
	chosen := make([]placement.Placement, n)
	for i := range chosen {
		best := slices.MinFunc(machines, func(a, b string) int {
			return cmp.Or(running[a]-running[b], len(missing[a])-len(missing[b]), strings.Compare(a, b))
		})
		chosen[i] = placement.Placement{Machine: best, MissingModels: missing[best]}
		running[best]++
	}
	return chosen
}

// missingModels are those of the names that machines lack, by machine. A machine
// that does not report lacks all.
func (l *leader) missingModels(ctx context.Context, machines, names []string) (map[string][]string, error) {
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // none are missing
	}
	reports, err := l.registry.GPUs.Machines(ctx)
	if err != nil {
		return nil, err
	}
	missing := map[string][]string{}
	for _, id := range machines {
		missing[id] = names
	}
	for _, m := range reports {
		missing[m.ID] = pod.MissingModels(names, m.Models)
	}
	return missing, nil
}
