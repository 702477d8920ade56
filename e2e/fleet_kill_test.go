package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"flightline/shared/bus/bustest"
	"flightline/shared/pod"
)

// TestAKilledLeaderLeavesNoOrphansAndNoDoubleFleet runs two autoscalers, each
// with its own machine, and kills the one that leads.
func TestAKilledLeaderLeavesNoOrphansAndNoDoubleFleet(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("looks for orphans in /proc")
	}
	s, b := newSite(t), bustest.New(t)
	key := "fl_test_key_of_the_fleet"
	s.env = append(s.env, "NATS_URL="+b.Config().URL, "FLIGHTLINE_NATS_USER="+b.Config().User, "FLIGHTLINE_NATS_PASSWORD="+b.Config().Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+key, "FLIGHTLINE_LIMITS=off")
	url := s.start("serve", "api", "control", "gateway").line(ready)
	f := newFleetSite(t, url, key, b.NC)
	var scalers []*daemon
	for _, folder := range []string{"one", "two"} {
		d := s.start("serve", "autoscaler", "--drivers", "process", "--fleet-folder", folder, "--gateway-url", url)
		d.line(ready)
		scalers = append(scalers, d)
	}
	f.endpoint("ep", map[string]any{"workersMin": 2, "scalerType": "REQUEST_COUNT", "scalerValue": 1})
	f.completed("ep", f.submit("ep", 6, 300, nil))

	leading, standing := scalers[0], scalers[1]
	if strings.Contains(standing.said(), "msg=active") {
		leading, standing = standing, leading
	}
	f.size("ep", 2)
	before, _ := f.pods("ep")
	leading.kill()
	// What it ran is gone at once, and its record says so within a lease.
	f.await("no process of the killed autoscaler", func() string { return workersOf(t, leading.cmd.Process.Pid, before) })
	f.await("records of the killed autoscaler's pods", func() string {
		running, all := f.pods("ep")
		if len(running) != 2 || !strings.Contains(standing.said(), "msg=active") {
			return fmt.Sprint(len(running), " run, of ", len(all))
		}
		for _, p := range running {
			if p.MachineID != running[0].MachineID {
				return fmt.Sprintf("pod %s is RUNNING on %s", p.ID, p.MachineID)
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
	f.size("ep", 2)
	standing.stop(2 * stopWithin)
	f.size("ep", 0)
	f.await("no process of the fleet", func() string { return workersOf(t, 0, nil) })
}

// workersOf returns the processes of fleet workers of this test: all, or those
// of the pods that no autoscaler but the killed one ran.
func workersOf(t *testing.T, killed int, pods []pod.Pod) string {
	t.Helper()
	var found []string
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(asFleetWorker+"=yes")) || !bytes.Contains(env, []byte("RUNPOD_ENDPOINT_ID=ep\x00")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		var state string
		var parent int
		if _, err := fmt.Sscan(string(rest), &state, &parent); err != nil || state == "Z" {
			continue
		}
		// Orphans have another parent than an autoscaler.
		if killed == 0 || parent == killed || parent == 1 {
			found = append(found, fmt.Sprintf("%s of %d (%d pods)", filepath.Dir(path), parent, len(pods)))
		}
	}
	return strings.Join(found, ", ")
}
