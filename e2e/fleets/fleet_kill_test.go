package fleets

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// shortLease is how long a machine and a worker last in this test that say
// nothing, 15 s otherwise. Machines say something every 5 s, workers of a fleet
// every 2 s.
const shortLease = 6 * time.Second

// failoverWithin bounds the time from the end of a leader to the first decision
// of the next: 15 s on a machine that does nothing else.
const failoverWithin = time.Minute

// TestAKilledLeaderLeavesNoOrphansAndNoDoubleFleet runs two autoscalers, each
// with its own machine, and kills the one that leads. A job that one of its
// workers ran is done by another.
func TestAKilledLeaderLeavesNoOrphansAndNoDoubleFleet(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("looks for orphans in /proc")
	}
	f := newFleetServer(t)
	leading, standing := f.twoScalers()
	f.endpoint("ep", map[string]any{"workersMin": 2, "workersMax": 2, "scalerType": "REQUEST_COUNT", "scalerValue": 1})
	f.completed("ep", f.submit("ep", 6, 300, nil))

	f.size("ep", 2)
	f.endpoint("zero", map[string]any{"workersMax": 2, "leaseMs": 10_000})
	held := f.submit("zero", 2, 5000, nil) // one on each machine
	for _, job := range held {
		f.running("zero", job)
	}
	leading.Kill()
	killed := time.Now() // the server's clock is this machine's
	f.rest(http.MethodPatch, "/v1/endpoints/ep", map[string]any{"workersMin": 3, "workersMax": 3}, nil)
	f.decidedWithin("ep", killed, failoverWithin)
	// What it ran is gone at once, and its record says so within a lease.
	f.await("no process of the killed autoscaler", func() string { return workersOf(t, leading.Cmd.Process.Pid) })
	f.await("records of the killed autoscaler's pods", func() string {
		running, all := f.pods("ep")
		if len(running) != 3 || !strings.Contains(standing.Said(), "msg=active") {
			return fmt.Sprint(len(running), " run, of ", len(all))
		}
		there, err := f.registry.Instances.Machines(t.Context())
		if err != nil || len(there[pod.Process]) != 1 {
			return fmt.Sprint(there, " are there, ", err)
		}
		for _, p := range running {
			if p.MachineID != there[pod.Process][0] {
				return fmt.Sprintf("pod %s is RUNNING where nothing runs any more", p.ID)
			}
		}
		return ""
	})
	_, all := f.pods("ep")
	for _, p := range all {
		if p.Status == pod.Exited && !strings.Contains(p.Change, "gone") {
			t.Errorf("pod %s: got %q, want that its autoscaler is gone", p.ID, p.Change)
		}
	}
	f.completed("ep", f.submit("ep", 6, 300, nil))
	f.completed("zero", held)
	f.size("zero", 0)
	f.size("ep", 3)
	standing.Stop(2 * program.StopWithin)
	f.size("ep", 0)
	f.await("no process of the fleet", func() string { return workersOf(t, 0) })
}

// twoScalers starts two autoscalers, each with its own machine, whose records last for
// shortLease, and says which one leads.
func (f *fleetServer) twoScalers() (leading, standing *program.Process) {
	f.t.Helper()
	for _, bucket := range []string{streams.BucketInstances, streams.BucketWorkers} {
		stream, err := f.bus.JS.Stream(f.t.Context(), streams.Bucket(bucket))
		if err != nil {
			f.t.Fatal(err)
		}
		lease := stream.CachedInfo().Config
		lease.MaxAge, lease.Duplicates = shortLease, shortLease
		if _, err := f.bus.JS.UpdateStream(f.t.Context(), lease); err != nil {
			f.t.Fatal(err)
		}
	}
	leading, standing = f.scaler("one"), f.scaler("two")
	f.await("a leader", func() string {
		if strings.Contains(leading.Said(), "msg=active") || strings.Contains(standing.Said(), "msg=active") {
			return ""
		}
		return "none"
	})
	if strings.Contains(standing.Said(), "msg=active") {
		leading, standing = standing, leading
	}
	return leading, standing
}

// decidedWithin waits for the first decision after that instant, and fails the
// test if it is late.
func (f *fleetSite) decidedWithin(id string, after time.Time, most time.Duration) {
	f.t.Helper()
	f.await("decision of the next leader", func() string {
		history, err := f.registry.Scaling.History(f.t.Context(), id, 100)
		if err != nil || len(history) == 0 || !history[0].At.After(after) {
			return fmt.Sprintf("%d decisions before, %v", len(history), err)
		}
		for i, d := range history {
			if i+1 < len(history) && history[i+1].At.After(after) {
				continue
			}
			took := d.At.Sub(after)
			f.t.Logf("first decision %s after the kill: %s", took.Round(time.Millisecond), d.Text)
			if took > most {
				f.t.Errorf("got the first decision %s after the kill, want %s at most", took, most)
			}
			break
		}
		return ""
	})
}

// workersOf returns the processes of fleet workers of this test: all, or those
// that no autoscaler but the killed one ran.
func workersOf(t *testing.T, killed int) string {
	t.Helper()
	var found []string
	for pid, parent := range fleetProcesses(t, "ep") {
		// Orphans have another parent than an autoscaler.
		if killed == 0 || parent == killed || parent == 1 {
			found = append(found, fmt.Sprintf("%d of %d", pid, parent))
		}
	}
	return strings.Join(found, ", ")
}

// fleetProcesses returns the fleet workers of an endpoint that run on this
// machine, with their parents.
func fleetProcesses(t *testing.T, endpoint string) map[int]int {
	t.Helper()
	found := map[int]int{}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(asFleetWorker+"=yes")) || !bytes.Contains(env, []byte("RUNPOD_ENDPOINT_ID="+endpoint+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue
		}
		text, rest, _ := bytes.Cut(stat, []byte(") "))
		var state string
		var pid, parent int
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(rest), &state, &parent); err != nil || state == "Z" {
			continue
		}
		found[pid] = parent
	}
	return found
}
