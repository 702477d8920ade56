package fleets

import (
	"os/exec"
	"path/filepath"
	"testing"

	"flightline/e2e/require"
)

// asFleetWorker sets how the worker of the tests is to be, and by it they find
// its processes.
const asFleetWorker = "FLEET_TEST_WORKER"

// publishedPython is the interpreter that has RunPod's package.
func publishedPython(t *testing.T) string {
	t.Helper()
	path := filepath.Join(require.Clients(t), "python", "bin", "python")
	if out, err := exec.CommandContext(t.Context(), path, "-c", "import runpod").CombinedOutput(); err != nil {
		require.Skip(t, "python", "the published package is not there; run e2e/clients/install: "+err.Error()+string(out))
	}
	return path
}
