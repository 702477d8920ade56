package system

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// gpuAudit looks at the GPUs from outside: at the claims over HTTP, and at the processes of
// pods in /proc.
type gpuAudit struct {
	w       *world
	vacant  map[gpuClaim]time.Time // since when a claim has no process
	longest time.Duration
	looks   int
	claimed int             // claims that were seen, at all looks together
	sleeps  map[string]bool // workers that were seen asleep
	pairs   map[string]bool // pods and GPUs

	mu   sync.Mutex
	pods map[string]string // the endpoints of pods whose process was seen, by pod
}

type gpuClaim struct{ gpu, pod string }

const (
	// asleepPrefix begins the name of the file that a worker makes while it sleeps.
	asleepPrefix = "asleep."
	// gpuLookInterval is the pause between two looks.
	gpuLookInterval = 50 * time.Millisecond
	// releaseTimeout is how long a claim may outlive its pod.
	releaseTimeout = 30 * time.Second
)

func newGPUAudit(w *world) *gpuAudit {
	return &gpuAudit{w: w, vacant: map[gpuClaim]time.Time{}, sleeps: map[string]bool{}, pairs: map[string]bool{}, pods: map[string]string{}}
}

// run looks until ctx ends.
func (a *gpuAudit) run(ctx context.Context) {
	for n := 0; wait(ctx, gpuLookInterval); n++ {
		a.looks++
		a.lookAtProcesses()
		if n%10 == 0 {
			a.lookAtClaims(ctx)
		}
	}
}

// lookAtProcesses finds GPUs that two pods have which live and are awake: at both of two
// looks, one after the other, so that at the end of the first both were.
func (a *gpuAudit) lookAtProcesses() {
	first := a.users()
	for gpu, pods := range first {
		for _, pod := range pods {
			a.pairs[gpu+" "+pod] = true
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(first)), func(pods []string) bool { return len(pods) > 1 }) {
		for _, twice := range usedTwice(first, a.users()) {
			a.w.violate(ruleGPU, "%s", twice)
		}
	}
}

// usedTwice are the GPUs that more than one pod used at both looks.
func usedTwice(first, second map[string][]string) (found []string) {
	for gpu, pods := range first {
		both := slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return !slices.Contains(second[gpu], pod) })
		if len(both) > 1 {
			found = append(found, gpu+" is used by "+strings.Join(both, " and "))
		}
	}
	return found
}

// users are the pods that live and are awake, by GPU.
func (a *gpuAudit) users() map[string][]string {
	asleep, using := map[string]bool{}, map[string][]string{}
	all := a.w.gpuProcesses()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range all {
		a.pods[p.pod] = p.endpoint
		if _, err := os.Stat(filepath.Join(a.w.dir, asleepPrefix+strconv.Itoa(p.pid))); err == nil {
			asleep[p.pod], a.sleeps[p.pod] = true, true
		}
	}
	for _, p := range all {
		for gpu := range strings.SplitSeq(p.gpus, ",") {
			if gpu != "" && !asleep[p.pod] && !slices.Contains(using[gpu], p.pod) {
				using[gpu] = append(using[gpu], p.pod)
			}
		}
	}
	return using
}

// workersOf are the pods of an endpoint whose process was seen.
func (a *gpuAudit) workersOf(endpoint string) (pods []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for pod, of := range a.pods {
		if of == endpoint {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	return pods
}

// lookAtClaims finds claims beyond the whole of a GPU, and how long claims have no process.
// While dev is away nothing is known, and nothing could be released.
func (a *gpuAudit) lookAtClaims(ctx context.Context) {
	claims, err := a.claims(ctx)
	if err != nil {
		clear(a.vacant)
		return
	}
	lives := map[string]bool{}
	for _, p := range a.w.gpuProcesses() {
		lives[p.pod] = true
	}
	if over := a.add(claims, lives, time.Now()); over != "" {
		a.w.violate(ruleGPU, "%s is claimed beyond its whole: %v", over, claims)
	}
}

// add notes which claims have no process now, and returns a GPU that is claimed beyond its
// whole, "" for none.
func (a *gpuAudit) add(claims map[gpuClaim]float64, lives map[string]bool, now time.Time) (over string) {
	vacant, used := map[gpuClaim]time.Time{}, map[string]float64{}
	a.claimed += len(claims)
	for c, share := range claims {
		if used[c.gpu] += share; used[c.gpu] > 1.001 { // of shares that were added
			over = c.gpu
		}
		if lives[c.pod] {
			continue
		}
		since, known := a.vacant[c]
		if !known {
			since = now
		}
		vacant[c], a.longest = since, max(a.longest, now.Sub(since))
	}
	a.vacant = vacant
	return over
}

// claims are the shares of GPUs that pods have claimed.
func (a *gpuAudit) claims(ctx context.Context) (map[gpuClaim]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.w.listen+"/v1/machines", nil)
	if err != nil {
		return nil, fmt.Errorf("look at the claims: %w", err)
	}
	var machines []struct {
		GPUs []struct {
			UUID   string
			Claims []struct {
				PodID string
				Share float64
			}
		}
	}
	if status, _, err := a.w.callers.do(req, &machines); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("look at the claims: status %d: %w", status, err)
	}
	claims := map[gpuClaim]float64{}
	for _, m := range machines {
		for _, g := range m.GPUs {
			for _, c := range g.Claims {
				claims[gpuClaim{g.UUID, c.PodID}] = c.Share
			}
		}
	}
	return claims, nil
}

// report says what was found.
func (a *gpuAudit) report() {
	if a.longest > releaseTimeout {
		a.w.violate(ruleGPU, "a claim outlived its pod by %s, want %s at most", a.longest.Round(time.Millisecond), releaseTimeout)
	}
	a.w.note("%d looks, at %d claims; GPUs were taken by %d workers, %d of them slept; the longest claim without a process: %s",
		a.looks, a.claimed, len(a.pairs), len(a.sleeps), a.longest.Round(time.Millisecond))
}

// gpuProcess is a process of a pod that was given GPUs.
type gpuProcess struct {
	pid                 int
	pod, endpoint, gpus string
}

// gpuProcesses are all whose gateway is the dev of this world.
func (w *world) gpuProcesses() (all []gpuProcess) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		env, err := os.ReadFile(path) // a process that has ended meanwhile has none
		if err != nil || !bytes.Contains(env, []byte("FLIGHTLINE_GPU_UUIDS=")) || !bytes.Contains(env, []byte("http://"+w.listen)) {
			continue
		}
		p := gpuProcess{}
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			switch name, value, _ := strings.Cut(string(entry), "="); name {
			case "RUNPOD_POD_ID":
				p.pod = value
			case "RUNPOD_ENDPOINT_ID":
				p.endpoint = value
			case "FLIGHTLINE_GPU_UUIDS":
				p.gpus = value
			}
		}
		if p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path))); p.pod != "" {
			all = append(all, p)
		}
	}
	return all
}

// descendsFrom reports whether a program has started the process, or one of its parents.
func (p gpuProcess) descendsFrom(program int) bool {
	for pid := p.pid; pid > 1; {
		if pid == program {
			return true
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		_, rest, ok := bytes.Cut(stat, []byte(") "))
		fields := bytes.Fields(rest)
		if err != nil || !ok || len(fields) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(string(fields[1])); err != nil {
			return false
		}
	}
	return false
}
