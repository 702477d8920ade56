package pod

import (
	"strings"
	"testing"
)

func TestGPUsOfAFile(t *testing.T) {
	card := `{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576}`
	got, err := ParseGPUs([]byte("[" + card + "]"))
	if want := (GPU{UUID: "GPU-1", Vendor: NVIDIA, Name: "NVIDIA L4", MemoryMB: 24576, MemoryGB: 24}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := ParseGPUs([]byte("[]")); err != nil || got == nil || len(got) != 0 {
		t.Errorf("got %v, %v, want an empty list", got, err)
	}
	for text, want := range map[string]string{
		"": "must be a JSON list", "null": "must be one JSON list", "{}": "must be a JSON list", "[] []": "must be one JSON list", "[]]": "must be one JSON list", `[{"uid":"x"}]`: "unknown field",
		"[" + card + "," + card + "]":                                                                      `[1].uuid must differ from the others, got "GPU-1" again`,
		strings.Replace("["+card+"]", "GPU-1", "", 1):                                                      "[0].uuid must be 1 to 128 letters",
		strings.Replace("["+card+"]", "GPU-1", "a.", 1):                                                    `got "a."`,
		strings.Replace("["+card+"]", "nvidia", "", 1):                                                     "[0].vendor must be",
		strings.Replace("["+card+"]", "24576", "0", 1):                                                     "[0].memoryMb must be between 1 and",
		strings.Replace("["+card+"]", "NVIDIA L4", "", 1):                                                  "[0].name must have 1 to 191 bytes, got 0",
		`[{"uuid":"a","vendor":"x","name":"n","memoryMb":1,"cuda":"12"}]`:                                  "[0].cuda must be a version like 12.4",
		`[{"uuid":"a","vendor":"x","name":"n","memoryMb":1,"health":"` + strings.Repeat("h", 1025) + `"}]`: "[0].health must have at most 1024 bytes, got 1025",
		`[{"uuid":"a","vendor":"x","name":"n\nm","memoryMb":1}]`:                                           `[0].name must hold no control characters, got "n\nm"`,
		`[{"uuid":"a","vendor":"x","name":"n","memoryMb":1,"health":"\u001b[2J"}]`:                         `[0].health must hold no control characters, got "\x1b[2J"`,
		`[{"uuid":"a","vendor":"x","name":"n","memoryMb":1,"driver":"` + strings.Repeat("d", 192) + `"}]`:  "[0].driver must have at most 191 bytes, got 192",
		"[" + strings.TrimSuffix(strings.Repeat("{},", 65), ",") + "]":                                     "must have at most 64 GPUs, got 65",
	} {
		if _, err := ParseGPUs([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", text, err, want)
		}
	}
}
