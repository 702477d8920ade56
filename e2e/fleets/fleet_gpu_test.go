package fleets

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

var gpuKills = flag.Duration("gpu-kills", 10*time.Second, "how long autoscalers and workers with GPUs are killed")

// workerKillPause is the least time between two kills of workers: those that are killed
// more often count as crashing, and neither start again soon nor get the same GPU.
const workerKillPause = 90 * time.Second

// releasedWithin bounds how long a claim may outlive its pod.
const releasedWithin = 30 * time.Second

const twoGPUs = `[{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576},{"uuid":"GPU-2","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576}]`

// TestKilledAutoscalersGiveNoGPUTwice runs two autoscalers that report the same two GPUs,
// as two programs on one host do, for three endpoints whose jobs need them. They and
// their workers get SIGKILL at random. Each worker locks a file for each GPU that it was
// given, so that a GPU which two living workers have is found however short that is. Two
// of the endpoints have workers that sleep when they yield: those unlock their GPUs and keep
// nothing of their claims, and have both again before they are awake.
func TestKilledAutoscalersGiveNoGPUTwice(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("finds workers in /proc")
	}
	f := newFleetServer(t)
	ledger := t.TempDir()
	gpus := filepath.Join(ledger, "gpus.json")
	if err := os.WriteFile(gpus, []byte(twoGPUs), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(i int) *program.Process { return f.scaler(fmt.Sprint("fleet", i), "--gpus", gpus) }
	scalers := []*program.Process{start(0), start(1)}
	ids := []string{"g1", "g2", "g3"}
	for i, id := range ids {
		env := map[string]string{asFleetWorker: "yes", "FLEET_TEST_LEDGER": ledger}
		if i < 2 {
			env["FLEET_TEST_SLEEPS"], env["NATS_URL"] = "yes", f.bus.Config().URL
			env["FLIGHTLINE_NATS_USER"], env["FLIGHTLINE_NATS_PASSWORD"] = f.bus.Config().User, f.bus.Config().Password
		}
		f.endpoint(id, map[string]any{
			"workersMax": 2, "gpuCount": 1, "minHoldMs": 1000, "maxSwapWaitMs": 4000, "leaseMs": 10_000, "maxLostWorkers": 100,
			"idleTimeout": 1, "sleepTimeout": 600, "sleepGpuShare": 0, "env": env,
		})
	}
	audit := claimAudit{vacant: map[string]time.Time{}}
	stopAudit := testenv.Background(t, func(ctx context.Context) error { return audit.run(ctx, f.registry) })
	jobs := map[string][]string{}
	kills, workerKills, lastWorkerKill := 0, 0, time.Now()
	for end := time.Now().Add(*gpuKills); time.Now().Before(end); {
		id := ids[rand.N(len(ids))]
		if all := jobs[id]; len(all) == 0 || f.isCompleted(id, all[len(all)-1]) {
			jobs[id] = append(all, f.submit(id, 2, 200, nil)...)
		}
		f.await("a GPU that is held", func() string { return f.unheld(t) })
		switch rand.N(4) {
		case 0: // nobody is killed: a worker may fall asleep, and the next job wakes it
			f.awaitSleeper(t)
		case 1:
			if time.Since(lastWorkerKill) < min(workerKillPause, *gpuKills/10) {
				continue
			}
			lastWorkerKill = time.Now()
			for _, one := range ids {
				for pid := range fleetProcesses(t, one) {
					if syscall.Kill(pid, syscall.SIGKILL) == nil {
						workerKills++
					}
				}
			}
		default:
			i := rand.N(len(scalers))
			scalers[i].Kill()
			scalers[i] = start(i)
			kills++
		}
	}
	for _, id := range ids {
		f.completed(id, jobs[id])
	}
	scalers[1].Kill() // it does not come back
	for _, id := range ids {
		f.rest(http.MethodPatch, "/v1/endpoints/"+id, map[string]any{"workersMax": 0}, nil)
	}
	for _, id := range ids {
		f.size(id, 0)
	}
	f.await("no claim", func() string {
		claims, err := f.registry.GPUs.Claims(t.Context())
		for _, c := range claims {
			if err != nil || len(c.Holders) > 0 {
				return fmt.Sprint(claims, err)
			}
		}
		return ""
	})
	stopAudit()
	if audit.over != "" {
		t.Errorf("a GPU was claimed beyond its whole: %s", audit.over)
	}
	if audit.longest > releasedWithin {
		t.Errorf("a GPU was claimed for %s by a pod without a process, want %s at most", audit.longest, releasedWithin)
	}
	text, err := os.ReadFile(filepath.Join(ledger, "ledger"))
	if err != nil || strings.Contains(string(text), "twice") {
		t.Errorf("%v, a GPU was given twice:\n%s", err, text)
	}
	t.Logf("%d kills of autoscalers, %d of workers; GPUs were taken %d times and given back for a sleep %d times; the longest claim without a process lasted %s",
		kills, workerKills, strings.Count(string(text), ": used"), strings.Count(string(text), " sleeps"), audit.longest)
}

// claimAudit notes how long a GPU is claimed by a pod that has no process: before its
// worker starts, and after that has ended; and a claim beyond the whole of a GPU.
type claimAudit struct {
	vacant  map[string]time.Time // since when, by pod and GPU
	longest time.Duration
	over    string
}

func (a *claimAudit) run(ctx context.Context, r *registry.Registry) error {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		claims, err := r.GPUs.Claims(ctx)
		if err != nil {
			continue // the bucket is asked again
		}
		pods, err := podsOfProcesses("")
		if err != nil {
			return err
		}
		a.add(claims, pods, time.Now())
	}
}

// add notes what claims there are at one instant, and which pods have a process.
func (a *claimAudit) add(claims map[string]registry.GPUClaims, pods map[string]bool, now time.Time) {
	vacant := map[string]time.Time{}
	for uuid, c := range claims {
		if c.Used() > pod.WholeGPU {
			a.over = fmt.Sprintf("%s: %+v", uuid, c.Holders)
		}
		for _, h := range c.Holders {
			if pods[h.Pod] {
				continue
			}
			key := h.Pod + " " + uuid
			vacant[key] = now
			if since, ok := a.vacant[key]; ok {
				vacant[key] = since
				a.longest = max(a.longest, now.Sub(since))
			}
		}
	}
	a.vacant = vacant
}

// podsOfProcesses are the ids of the pods that have a process on this host, as its
// environment says: of those that take jobs at an address, or of all if that is "".
func podsOfProcesses(address string) (map[string]bool, error) {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	pods := map[string]bool{}
	for _, path := range environs {
		env, _ := os.ReadFile(path) // a process that has ended meanwhile has none
		if !bytes.Contains(env, []byte("RUNPOD_WEBHOOK_GET_JOB="+address)) {
			continue
		}
		for value := range strings.SplitSeq(string(env), "\x00") {
			if id, ok := strings.CutPrefix(value, "RUNPOD_POD_ID="); ok {
				pods[id] = true
			}
		}
	}
	return pods, err
}

// awaitSleeper waits until a worker sleeps that has given back its GPU, for some seconds at most.
func (f *fleetSite) awaitSleeper(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	for look := time.NewTicker(100 * time.Millisecond); ; {
		claims, _ := f.registry.GPUs.Claims(t.Context())
		for _, c := range claims {
			if slices.ContainsFunc(c.Holders, func(h registry.GPUHolder) bool { return h.Share == 0 }) {
				return
			}
		}
		select {
		case <-ctx.Done():
			look.Stop()
			return
		case <-look.C:
		}
	}
}

func (f *fleetSite) isCompleted(id, job string) bool {
	var got struct{ Status string }
	f.rest(http.MethodGet, "/v2/"+id+"/status/"+job, nil, &got)
	return got.Status == "COMPLETED"
}

// unheld says that no GPU is held.
func (f *fleetSite) unheld(t *testing.T) string {
	t.Helper()
	claims, err := f.registry.GPUs.Claims(t.Context())
	if err == nil && len(claims) > 0 {
		return ""
	}
	return fmt.Sprint("none, ", err)
}
