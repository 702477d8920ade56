package fleets

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"flightline/e2e/need"
)

// asFleetWorker tells the worker of the tests how to be, and by it they find
// its processes.
const asFleetWorker = "FLEET_TEST_WORKER"

// publishedPython is the interpreter that has RunPod's package.
func publishedPython(t *testing.T) string {
	t.Helper()
	//nolint:forbidigo // tests have no main to hand them their settings
	dir := os.Getenv("FLIGHTLINE_CLIENTS")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(home, ".cache", "flightline", "clients")
	}
	path := filepath.Join(dir, "python", "bin", "python")
	if out, err := exec.CommandContext(t.Context(), path, "-c", "import runpod").CombinedOutput(); err != nil {
		need.Skip(t, "python", "the published package is not there; run e2e/clients/install: "+err.Error()+string(out))
	}
	return path
}
