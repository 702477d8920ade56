package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"flightline/e2e/require"
)

// The tutorial of two GPUs has a system of its own: one dev with a file of GPUs, and two
// more autoscalers.
func TestTheTutorialOfTwoGPUsDoesWhatItSays(t *testing.T) {
	if testing.Short() {
		t.Skip("builds everything")
	}
	t.Parallel()
	for _, tool := range []string{"bash", "sed", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Skip(t, "readme", tool+" is not there")
		}
	}
	const file = "docs/tutorials/two-gpus.md"
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	newSession(t, copyOfRepository(t)).play(t, blocksOf(file, string(text)))
}
