package pod

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of pods, templates and volumes.
const (
	// MaxName bounds names, in characters.
	MaxName = 191
	// MaxText bounds images, paths and ids of others, in bytes, MaxReadme a readme.
	MaxText   = 1024
	MaxReadme = 64 << 10
	// MaxGPUTypes bounds the kinds of GPU that a pod asks for.
	MaxGPUTypes = 100
	// maxWords bounds the words of entrypoint and command each, MaxWordBytes
	// their length together; maxEnv the variables, MaxEnvBytes their names and
	// values together; and maxPorts the ports.
	maxWords     = 100
	MaxWordBytes = 64 << 10
	maxEnv       = 200
	MaxEnvBytes  = 64 << 10
	maxPorts     = 100
	// MaxDiskGB bounds disks and volumes.
	MaxDiskGB = 1 << 20
	// maxGPUs, maxVCPUs and MaxMemoryGB bound the limits of a pod.
	maxGPUs     = 64
	maxVCPUs    = 1024
	MaxMemoryGB = 65536
	// MaxInitTimeout bounds Spec.InitTimeout.
	MaxInitTimeout = 24 * time.Hour
)

// FieldError says which field is wrong and what it may be. It is an ErrInvalid.
type FieldError struct {
	// Field is the path in the API's spelling.
	Field string
	Text  string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Text }

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Check returns a *FieldError if the pod cannot be made like this.
func (p Pod) Check() error {
	if !ValidID(p.ID) {
		return &FieldError{"id", fmt.Sprintf("must be 1 to 128 letters, digits, '-' or '_', got %.150q", p.ID)}
	}
	if err := checkName(p.Name); err != nil {
		return err
	}
	switch p.Driver {
	case "":
	case Process:
		if len(p.Spec.Command) == 0 && len(p.Spec.Entrypoint) == 0 {
			return &FieldError{"dockerStartCmd", "is needed by the driver process"}
		}
	case Docker:
		if p.Spec.Image == "" {
			return &FieldError{"imageName", "is needed by the driver docker"}
		}
	case External:
		fallthrough // it starts nothing
	default:
		return &FieldError{"driver", fmt.Sprintf(`must be "process" or "docker", got %.50q`, p.Driver)}
	}
	return p.Spec.Check()
}

// Check returns a *FieldError if the template cannot be made like this.
func (t Template) Check() error {
	if err := checkName(t.Name); err != nil {
		return err
	}
	switch t.Category {
	case "", "NVIDIA", "AMD", "CPU":
	default:
		return &FieldError{"category", fmt.Sprintf(`must be "NVIDIA", "AMD" or "CPU", got %.50q`, t.Category)}
	}
	if len(t.Readme) > MaxReadme {
		return &FieldError{"readme", fmt.Sprintf("must be at most %d bytes, got %d", MaxReadme, len(t.Readme))}
	}
	return t.Spec.Check()
}

// Check returns a *FieldError if the volume cannot be made like this.
func (v Volume) Check() error {
	switch {
	case v.SizeGB < 1 || v.SizeGB > MaxDiskGB:
		return &FieldError{"size", fmt.Sprintf("must be between 1 and %d GB, got %v", MaxDiskGB, v.SizeGB)}
	case len(v.DataCenterID) > MaxText:
		return &FieldError{"dataCenterId", fmt.Sprintf("must be at most %d bytes, got %d", MaxText, len(v.DataCenterID))}
	case v.Path != "" && !cleanPath(v.Path):
		return &FieldError{"path", fmt.Sprintf("must be an absolute path without '..', got %.300q", v.Path)}
	}
	return checkName(v.Name)
}

// Check returns a *FieldError if nothing can be started from this.
func (s Spec) Check() error {
	for _, text := range []struct{ field, value string }{
		{"imageName", s.Image},
		{"containerRegistryAuthId", s.RegistryAuthID},
	} {
		if len(text.value) > MaxText || strings.ContainsAny(text.value, "\x00\r\n\t ") {
			return &FieldError{text.field, fmt.Sprintf("must be at most %d bytes, without white space, got %.300q", MaxText, text.value)}
		}
	}
	if s.VolumePath != "" && !cleanPath(s.VolumePath) {
		return &FieldError{"volumeMountPath", fmt.Sprintf("must be an absolute path without '..', got %.300q", s.VolumePath)}
	}
	if err := cmp.Or(
		checkWords("dockerEntrypoint", s.Entrypoint), checkWords("dockerStartCmd", s.Command), checkEnv(s.Env), checkPorts(s.Ports),
		checkGPUTypes(s.GPUTypes), CheckCapabilities("capabilities", s.Capabilities), CheckModels(s.ModelCache),
	); err != nil {
		return err
	}
	if len(s.ModelCache) > 0 && (s.VolumePath == ModelCachePath || strings.HasPrefix(s.VolumePath, ModelCachePath+"/")) {
		return &FieldError{"volumeMountPath", fmt.Sprintf("must not be %s or below it, where the models of modelCache are", ModelCachePath)}
	}
	return s.checkNumbers()
}

func (s Spec) checkNumbers() error {
	for _, b := range []struct {
		field       string
		value, most float64
	}{
		{"gpuCount", float64(s.GPUs), maxGPUs},
		{"vcpuCount", s.VCPUs, maxVCPUs},
		{"memoryInGb", s.MemoryGB, MaxMemoryGB},
		{"containerDiskInGb", float64(s.DiskGB), MaxDiskGB},
		{"volumeInGb", float64(s.VolumeGB), MaxDiskGB},
	} {
		if math.IsNaN(b.value) || b.value < 0 || b.value > b.most {
			return &FieldError{b.field, fmt.Sprintf("must be between 0 and %s, got %v", strconv.FormatFloat(b.most, 'f', -1, 64), b.value)}
		}
	}
	return nil
}

func checkGPUTypes(kinds []string) error {
	if len(kinds) > MaxGPUTypes {
		return &FieldError{"gpuTypeIds", fmt.Sprintf("must name at most %d kinds, got %d", MaxGPUTypes, len(kinds))}
	}
	for i, kind := range kinds {
		if n := utf8.RuneCountInString(kind); n < 1 || n > MaxName {
			return &FieldError{fmt.Sprintf("gpuTypeIds[%d]", i), fmt.Sprintf("must have 1 to %d characters, got %d", MaxName, n)}
		}
	}
	return nil
}

func checkName(name string) error {
	if n := utf8.RuneCountInString(name); n < 1 || n > MaxName || !utf8.ValidString(name) {
		return &FieldError{"name", fmt.Sprintf("must have 1 to %d characters of UTF-8, got %d", MaxName, n)}
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return &FieldError{"name", "must hold no control characters"}
	}
	return nil
}

func checkWords(field string, words []string) error {
	if len(words) > maxWords {
		return &FieldError{field, fmt.Sprintf("must have at most %d words, got %d", maxWords, len(words))}
	}
	size := 0
	for i, word := range words {
		if strings.Contains(word, "\x00") {
			return &FieldError{fmt.Sprintf("%s[%d]", field, i), "must not hold NUL"}
		}
		size += len(word)
	}
	if size > MaxWordBytes {
		return &FieldError{field, fmt.Sprintf("must be at most %d bytes, got %d", MaxWordBytes, size)}
	}
	if len(words) > 0 && words[0] == "" {
		return &FieldError{field + "[0]", "must name a program"}
	}
	return nil
}

// checkEnv refuses what an environment cannot hold.
func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return &FieldError{"env", fmt.Sprintf("must have at most %d variables, got %d", maxEnv, len(env))}
	}
	size := 0
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00\r\n") {
			return &FieldError{"env", "has a name that is empty, or holds '=', a line break or NUL"}
		}
		if strings.ContainsAny(value, "\x00\r\n") {
			return &FieldError{"env." + name, "must not hold a line break or NUL"}
		}
		size += len(name) + len(value)
	}
	if value, given := env[initTimeoutVariable]; given && initTimeoutOf(value) == 0 {
		return &FieldError{"env." + initTimeoutVariable, fmt.Sprintf("must be whole seconds between 1 and %.0f, got %.50q", MaxInitTimeout.Seconds(), value)}
	}
	if size > MaxEnvBytes {
		return &FieldError{"env", fmt.Sprintf("must be at most %d bytes, got %d", MaxEnvBytes, size)}
	}
	return nil
}

var portForm = regexp.MustCompile(`^([1-9][0-9]{0,4})/(http|tcp)$`)

func checkPorts(ports []string) error {
	if len(ports) > maxPorts {
		return &FieldError{"ports", fmt.Sprintf("must be at most %d, got %d", maxPorts, len(ports))}
	}
	for i, port := range ports {
		found := portForm.FindStringSubmatch(port)
		if found == nil {
			return &FieldError{fmt.Sprintf("ports[%d]", i), fmt.Sprintf(`must be "<port>/http" or "<port>/tcp", got %.50q`, port)}
		}
		if n, err := strconv.Atoi(found[1]); err != nil || n > 65535 {
			return &FieldError{fmt.Sprintf("ports[%d]", i), fmt.Sprintf("must be a port of 1 to 65535, got %.50q", port)}
		}
	}
	return nil
}

// cleanPath reports whether p is absolute, and spelled without detours. A colon
// would end it in the mounts of an engine.
func cleanPath(p string) bool {
	return len(p) <= MaxText && path.IsAbs(p) && !strings.ContainsAny(p, "\x00\r\n:") && path.Clean(p) == p
}

// MaxCapabilities bounds the capabilities of a container. Linux has 41.
const MaxCapabilities = 64

var capabilityForm = regexp.MustCompile(`^[A-Z][A-Z_]{1,39}$`)

// CheckCapabilities returns a *FieldError for a name that is no capability as
// Docker spells it: "CHOWN", without the prefix "CAP_", or "ALL".
func CheckCapabilities(field string, names []string) error {
	if len(names) > MaxCapabilities {
		return &FieldError{field, fmt.Sprintf("must have at most %d names, got %d", MaxCapabilities, len(names))}
	}
	for i, name := range names {
		if !capabilityForm.MatchString(name) || len(name) > 4 && name[:4] == "CAP_" {
			return &FieldError{fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("must be a capability like CHOWN, or ALL, got %.50q", name)}
		}
	}
	return nil
}

// CheckVolumePath returns a *FieldError unless p is a folder directly below
// root, the folder for volumes of the hosts. Deeper ones are refused: a pod
// that has a folder mounted could replace a folder in it by a link while
// another pod starts. An empty root allows no path, an empty p is no path.
func CheckVolumePath(root, p string) error {
	switch {
	case p == "":
		return nil
	case root == "":
		return &FieldError{"path", fmt.Sprintf("must be empty, got %q: this installation has no --volume-root, so pods get no folder of the host", p)}
	case !cleanPath(p):
		return &FieldError{"path", fmt.Sprintf("must be an absolute path without '..', got %.300q", p)}
	case root == "/" || path.Dir(p) != root || p == root:
		return &FieldError{"path", fmt.Sprintf("must be a folder directly below %s (--volume-root), got %q", root, p)}
	}
	return nil
}
