package fleets

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

var gpuKills = flag.Duration("gpu-kills", 10*time.Second, "how long autoscalers and workers with GPUs are killed")

// releasedWithin bounds how long a claim may outlive its pod.
const releasedWithin = 30 * time.Second

const twoGPUs = `[{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576},{"uuid":"GPU-2","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576}]`

// TestKilledAutoscalersGiveNoGPUTwice runs two autoscalers that report the same two GPUs,
// as two programs on one host do, for three endpoints whose jobs need them. They and
// their workers get SIGKILL at random. Each worker locks a file for each GPU that it was
// given, so that a GPU which two living workers have is found however short that is.
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
	for _, id := range ids {
		f.endpoint(id, map[string]any{
			"workersMax": 2, "gpuCount": 1, "minHoldMs": 1000, "maxSwapWaitMs": 4000, "leaseMs": 10_000, "maxLostWorkers": 100,
			"env": map[string]string{asFleetWorker: "yes", "FLEET_TEST_LEDGER": ledger},
		})
	}
	jobs := map[string][]string{}
	kills, workerKills := 0, 0
	for end := time.Now().Add(*gpuKills); time.Now().Before(end); {
		id := ids[rand.N(len(ids))]
		jobs[id] = append(jobs[id], f.submit(id, 2, 200, nil)...)
		f.await("a GPU that is held", func() string { return f.unheld(t) })
		switch rand.N(3) {
		case 0:
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
	over := time.Now()
	f.await("no claim", func() string {
		claims, err := f.registry.GPUs.Claims(t.Context())
		if err != nil || len(claims) > 0 {
			return fmt.Sprint(claims, err)
		}
		return ""
	})
	if took := time.Since(over); took > releasedWithin {
		t.Errorf("claims were released %s after their pods were gone, want %s at most", took, releasedWithin)
	}
	text, err := os.ReadFile(filepath.Join(ledger, "ledger"))
	if err != nil || strings.Contains(string(text), "twice") {
		t.Errorf("%v, a GPU was given twice:\n%s", err, text)
	}
	t.Logf("%d kills of autoscalers, %d of workers, %d workers had a GPU", kills, workerKills, strings.Count(string(text), "\n"))
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
