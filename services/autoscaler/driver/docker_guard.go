package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/mount"

	"flightline/shared/pod"
)

// MaxPIDs bounds the processes and threads of a container: far above what a
// worker with many GPUs has, and below what the machine has in all.
const MaxPIDs = 16384

// sockets by which an engine is reached; who may write to one is root.
var sockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"}

// allowed returns a pod.ErrInvalid if the machine does not allow one of the
// capabilities.
func (d *Docker) allowed(capabilities []string) error {
	if slices.Contains(d.cfg.Capabilities, "ALL") {
		return nil
	}
	for _, name := range capabilities {
		if !slices.Contains(d.cfg.Capabilities, name) {
			return fmt.Errorf("%w: capability %s is not allowed on this machine; --docker-capabilities allows %s",
				pod.ErrInvalid, name, orNone(d.cfg.Capabilities))
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// mounts are the pod's volumes. It returns a pod.ErrInvalid for a folder that
// no pod may have.
func (d *Docker) mounts(s Start) ([]mount.Mount, error) {
	if s.Volume == "" || s.Spec.VolumePath == "" {
		return nil, nil
	}
	folder, err := d.mountable(s.Volume)
	if err != nil {
		return nil, fmt.Errorf("%w: network volume: %w", pod.ErrInvalid, err)
	}
	return []mount.Mount{{Type: mount.TypeBind, Source: folder, Target: s.Spec.VolumePath}}, nil
}

// mountable returns the folder that the path leads to, if a pod may have it: it
// is directly below the root, also after all links, and holds no socket of an
// engine. Only the operator writes to the root itself, so what is found here
// is what the engine mounts.
func (d *Docker) mountable(volume string) (string, error) {
	if err := pod.CheckVolumePath(d.cfg.VolumeRoot, volume); err != nil {
		return "", err
	}
	socket, local := strings.CutPrefix(d.cfg.Host, "unix://")
	if !local {
		return "", fmt.Errorf("path %q cannot be checked: the engine is not on this machine", volume)
	}
	root, err := filepath.EvalSymlinks(d.cfg.VolumeRoot)
	if err != nil {
		return "", fmt.Errorf("--volume-root: %w", err)
	}
	folder, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return "", fmt.Errorf("path: %w", err)
	}
	if filepath.Dir(folder) != root || folder == root {
		return "", fmt.Errorf("path %q leads to %q, which is not directly below %s (--volume-root)", volume, folder, root)
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", fmt.Errorf("path %q is not a folder", volume)
	}
	for _, name := range append(slices.Clip(sockets), socket) {
		at, err := filepath.EvalSymlinks(name)
		if err == nil && strings.HasPrefix(at, folder+string(filepath.Separator)) {
			return "", fmt.Errorf("path %q holds the socket of an engine", volume)
		}
	}
	return folder, nil
}
