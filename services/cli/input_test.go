package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"flightline/shared/job"
)

// What never ends, as a device, is read no further than the API could take it.
func TestNoMoreIsReadThanTheAPITakes(t *testing.T) {
	const most = job.MaxSyncBody + 1
	path := filepath.Join(t.TempDir(), "large.json")
	large := make([]byte, most+1)
	if err := os.WriteFile(path, large, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{"@" + path, "-"} {
		if got, err := readInput(arg, bytes.NewReader(large)); err != nil || len(got) != most {
			t.Errorf("%s: got %d bytes, %v, want %d", arg, len(got), err, most)
		}
	}
	if got, err := readInput("{}", nil); err != nil || string(got) != "{}" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTextOfOthersDoesNotRuleTheTerminal(t *testing.T) {
	const hostile, harmless = "a\x1b[2J\u009b31m\x7f\r\n\tü", "a[2J31m  ü"
	if got := clean(hostile); got != harmless {
		t.Errorf("got %q, want %q", got, harmless)
	}
	if got, want := oneLine([]byte("{\n \"x\": \"\u009b31m\x7f\"}")), `{"x":"31m"}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
