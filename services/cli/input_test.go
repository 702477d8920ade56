package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/job"
)

// What never ends, as a device, is read no further than the API could take it, and is
// refused for its size, not for the JSON that it was cut to.
func TestNoMoreIsReadThanTheAPITakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.json")
	for _, size := range []int{job.MaxRunSyncBody, job.MaxRunSyncBody + 1, job.MaxRunSyncBody + 1000} {
		large := make([]byte, size)
		if err := os.WriteFile(path, large, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, arg := range []string{"@" + path, "-"} {
			in := bytes.NewReader(large)
			got, err := readInput(arg, in)
			if size <= job.MaxRunSyncBody {
				if err != nil || len(got) != size {
					t.Errorf("%s: got %d bytes, %v, want %d", arg, len(got), err, size)
				}
				continue
			}
			usage, refused := errors.AsType[*UsageError](err)
			if !refused || !strings.Contains(usage.Error(), "larger than 20971520 bytes") {
				t.Errorf("%s of %d bytes: got %v, want the bound", arg, size, err)
			}
			if arg == "-" && size-in.Len() > job.MaxRunSyncBody+1 {
				t.Errorf("got %d bytes read of %d", size-in.Len(), size)
			}
		}
	}
	if got, err := readInput("{}", nil); err != nil || string(got) != "{}" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAnInputThatIsNoJSONIsRefusedWithThePlace(t *testing.T) {
	for input, want := range map[string]string{
		`{"a":1,}`:        "; invalid character '}' looking for beginning of object key string (at byte 8)",
		`{"a":`:           "; unexpected end of JSON input (at byte 5)",
		"\uFEFF{\"a\":1}": "; invalid character 'ï' looking for beginning of value (at byte 1)",
		`[1]`:             "",
		`null`:            "",
	} {
		_, err := requestOf([]byte(input), policyFlags{})
		if want = `the input must be a JSON object, as '{"text":"hello"}'` + want; err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", input, err, want)
		}
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
