package pod

import (
	"fmt"
	"regexp"
	"slices"
)

// ModelCachePath is where a container has the cached models of its machine, in the layout
// of Hugging Face's cache; the same as on RunPod.
const ModelCachePath = "/runpod-volume/huggingface-cache/hub"

const (
	// maxCachedModels bounds the models that one endpoint, template or pod names.
	maxCachedModels = 20
	// maxModelName bounds the name of a model, in bytes.
	maxModelName = 193
)

// modelName is how Hugging Face names models: words with a dot or a hyphen between them.
// Two hyphens are what its cache has in place of the slash.
var modelName = regexp.MustCompile(`^[A-Za-z0-9_]+((\.|-|\.-|-\.)[A-Za-z0-9_]+)*(/[A-Za-z0-9_]+((\.|-|\.-|-\.)[A-Za-z0-9_]+)*)?$`)

// ValidModel reports whether name may be that of a model, as "Qwen/Qwen3-8B".
func ValidModel(name string) bool { return len(name) <= maxModelName && modelName.MatchString(name) }

// CheckModels returns a *FieldError for a list of models that cannot be, or names one twice.
func CheckModels(names []string) error {
	if len(names) > maxCachedModels {
		return &FieldError{"modelCache", fmt.Sprintf("must have at most %d models, got %d", maxCachedModels, len(names))}
	}
	for i, name := range names {
		field := fmt.Sprintf("modelCache[%d]", i)
		switch {
		case !ValidModel(name):
			return &FieldError{field, fmt.Sprintf("must be a model as ORGANIZATION/NAME of at most %d bytes, got %.50q", maxModelName, name)}
		case slices.Contains(names[:i], name):
			return &FieldError{field, fmt.Sprintf("must differ from the others, got %q again", name)}
		}
	}
	return nil
}

// Model is a model that a machine has in its cache.
type Model struct {
	// Name is as in ValidModel.
	Name string `json:"name"`
	// Bytes are those of its files, of all its revisions; 0 is unknown.
	Bytes int64 `json:"bytes,omitempty"`
}

// MissingModels are those of the names that are not among the models, in order.
func MissingModels(names []string, models []Model) []string {
	var missing []string
	for _, name := range names {
		if !slices.ContainsFunc(models, func(m Model) bool { return m.Name == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}
