package pod

import (
	"fmt"
	"path"
	"regexp"
)

// MaxCapabilities bounds the capabilities of a container. Linux has 41.
const MaxCapabilities = 64

var capabilityForm = regexp.MustCompile(`^[A-Z][A-Z_]{1,39}$`)

// CheckCapabilities returns a *FieldError for a name that is no capability as
// Docker spells it: "CHOWN", without the prefix "CAP_", or "ALL".
func CheckCapabilities(field string, names []string) error {
	if len(names) > MaxCapabilities {
		return &FieldError{field, fmt.Sprintf("must have at most %d names", MaxCapabilities)}
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
		return &FieldError{"path", "must be an absolute path without '..'"}
	case root == "/" || path.Dir(p) != root || p == root:
		return &FieldError{"path", fmt.Sprintf("must be a folder directly below %s (--volume-root), got %q", root, p)}
	}
	return nil
}
