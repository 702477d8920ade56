package pod

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCheckModels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		want  string // how the error begins, "" for none
	}{
		{nil, ""},
		{[]string{"Qwen/Qwen3-8B", "gpt2", "microsoft/Phi-3.5-mini-instruct", "a_b/c.-d"}, ""},
		{[]string{"ok/ok", "a/b/c"}, `modelCache[1] must be a model as ORGANIZATION/NAME of at most 193 bytes, got "a/b/c"`},
		{[]string{""}, "modelCache[0] must be a model"},
		{[]string{"a--b/c"}, "modelCache[0] must be a model"},
		{[]string{"../c"}, "modelCache[0] must be a model"},
		{[]string{"a/c-"}, "modelCache[0] must be a model"},
		{[]string{"a/c\n"}, "modelCache[0] must be a model"},
		{[]string{"https://hub/a/b"}, "modelCache[0] must be a model"},
		{[]string{"a/" + strings.Repeat("b", 192)}, "modelCache[0] must be a model"},
		{[]string{"a/b", "a/b"}, `modelCache[1] must differ from the others, got "a/b" again`},
		{make([]string, 21), "modelCache must have at most 20 models, got 21"},
	} {
		err := Spec{ModelCache: tt.names}.Check()
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%.60q: got %v, want %q", tt.names, err, tt.want)
		}
	}
}

// A volume at the path of the cache, or below it, would hide the models.
func TestAVolumeIsNotWhereTheModelsAre(t *testing.T) {
	t.Parallel()
	for path, good := range map[string]bool{
		"/runpod-volume": true, "/runpod-volume/huggingface-cache": true, ModelCachePath: false, ModelCachePath + "/x": false, ModelCachePath + "s": true,
	} {
		spec := Spec{VolumePath: path, ModelCache: []string{"a/b"}}
		if err := spec.Check(); (err == nil) != good || err != nil && !strings.HasPrefix(err.Error(), "volumeMountPath must not be") {
			t.Errorf("%s: got %v, want allowed %v", path, err, good)
		}
		if spec.ModelCache = nil; spec.Check() != nil {
			t.Errorf("%s without models: got an error", path)
		}
	}
}

func TestMissingModels(t *testing.T) {
	t.Parallel()
	have := []Model{{Name: "gpt2"}, {Name: "a/c"}}
	if got := MissingModels([]string{"x/y", "gpt2", "a/b"}, have); !slices.Equal(got, []string{"x/y", "a/b"}) {
		t.Errorf("got %v, want x/y and a/b", got)
	}
}
