package driver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"flightline/shared/pod"
)

// Start implements Driver. What ended is replaced by a new container. It
// returns a pod.ErrInvalid for a spec that the engine refuses.
func (d *Docker) Start(ctx context.Context, s Start) error {
	if !pod.ValidID(s.PodID) {
		return fmt.Errorf("%w: pod id %q", pod.ErrInvalid, s.PodID)
	}
	body, err := d.containerOf(s)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", s.PodID, err)
	}
	mutex, _ := d.starts.LoadOrStore(s.PodID, new(sync.Mutex))
	starting := mutex.(*sync.Mutex) // nothing else is stored
	starting.Lock()
	defer starting.Unlock()
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	made, runs, err := d.clear(ctx, body)
	id := made
	if err == nil && !runs && made == "" {
		id, err = d.create(ctx, body, s)
	}
	if err != nil {
		return err
	}
	if id == "" {
		s.leave(ctx)
		return nil
	}
	s.enter(ctx, pod.Starting)
	call, cancel := context.WithTimeout(ctx, d.cfg.callTimeout)
	defer cancel()
	if _, err := d.engine.ContainerStart(call, id, client.ContainerStartOptions{}); err != nil {
		d.discard(ctx, id)
		return refused(ctx, "start the container of pod "+s.PodID, err)
	}
	if made != "" {
		s.leave(ctx)
	}
	return nil
}

// clear reports whether the pod runs, or another one of us is about to start it, and
// removes its container if neither is so. made is the id of a container that another one
// made for this start and did not start yet: it may have been killed before that.
func (d *Docker) clear(ctx context.Context, body client.ContainerCreateOptions) (made string, runs bool, err error) {
	call, cancel := context.WithTimeout(ctx, d.cfg.callTimeout)
	defer cancel()
	found, err := d.engine.ContainerInspect(call, body.Name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, explain(ctx, "look for container "+body.Name, err)
	}
	c := found.Container
	switch {
	case c.State == nil:
	case isStarting(c.State.Status, c.Created) && sameLabels(c.Config, body.Config):
		return c.ID, false, nil
	case alive(c.State.Status) || isStarting(c.State.Status, c.Created):
		return "", true, nil
	}
	// By its id: what another one made meanwhile is left alone.
	_, err = d.engine.ContainerRemove(call, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true})
	if errdefs.IsConflict(err) { // its maker started it meanwhile, or another one removes it
		return "", true, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return "", false, explain(ctx, "remove ended container "+body.Name, err)
	}
	return "", false, nil
}

// sameLabels reports whether a container was made for the same start as another one.
func sameLabels(a, b *container.Config) bool {
	return a != nil && !slices.ContainsFunc([]string{podLabel, lifeLabel, gpusLabel}, func(label string) bool { return a.Labels[label] != b.Labels[label] })
}

// isStarting reports whether a container was made, at an instant as the engine
// writes it, so recently that its maker is about to start it.
func isStarting(state container.ContainerState, made string) bool {
	at, err := time.Parse(time.RFC3339Nano, made)
	return err == nil && state == container.StateCreated && time.Since(at) < createdTimeout
}

// create makes the container, and fetches its image if the engine does not have it. The
// id is "" if another one of us was faster, and starts it.
func (d *Docker) create(ctx context.Context, body client.ContainerCreateOptions, s Start) (id string, err error) {
	made, err := d.tryCreate(ctx, body)
	if errdefs.IsNotFound(err) {
		s.enter(ctx, pod.Pulling)
		if err := d.pull(ctx, body.Config.Image); err != nil {
			return "", err
		}
		made, err = d.tryCreate(ctx, body)
	}
	switch {
	case errdefs.IsConflict(err):
		return "", nil
	case err != nil:
		return "", refused(ctx, "create container "+body.Name, err)
	}
	return made.ID, nil
}

// tryCreate does not end with ctx: the engine would make the container all the same, and
// nobody would start or remove it.
func (d *Docker) tryCreate(ctx context.Context, body client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.callTimeout)
	defer cancel()
	return d.engine.ContainerCreate(ctx, body)
}

// pull fetches an image, and lets others start meanwhile. That this fails says
// nothing of the engine: images come from elsewhere.
func (d *Docker) pull(ctx context.Context, image string) error {
	<-d.turns
	defer func() { d.turns <- struct{}{} }()
	call, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	d.log.InfoContext(ctx, "image is fetched", "image", image)
	answer, err := d.engine.ImagePull(call, image, client.ImagePullOptions{})
	if err == nil {
		err = answer.Wait(call)
	}
	switch {
	case client.IsErrConnectionFailed(err):
		return explain(ctx, "fetch image "+image, err)
	case err != nil:
		return fmt.Errorf("fetch image %s: %w", image, err)
	}
	return nil
}

// discard removes a container that could not be started.
func (d *Docker) discard(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.callTimeout)
	defer cancel()
	if _, err := d.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		d.log.DebugContext(ctx, "container left that could not be started", "container", id, "err", err)
	}
}

// containerOf is what the engine is asked for. It returns a pod.ErrInvalid if
// the spec has no image, ports that cannot be, or a volume or capabilities that
// are not allowed here.
func (d *Docker) containerOf(s Start) (client.ContainerCreateOptions, error) {
	if s.Spec.Image == "" {
		return client.ContainerCreateOptions{}, fmt.Errorf("%w: no image", pod.ErrInvalid)
	}
	volumes, err := d.mounts(s)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	if err := d.allowed(s.Spec.Capabilities); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	exposed, bindings, err := portsOf(s.Spec.Ports)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	hosting := &container.HostConfig{
		NetworkMode: container.NetworkMode(d.cfg.Network), PortBindings: bindings,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources:     d.resources(s), Mounts: volumes,
		CapDrop: []string{"ALL"}, CapAdd: s.Spec.Capabilities, SecurityOpt: []string{"no-new-privileges"},
	}
	if d.cfg.Network != "host" && d.cfg.Network != "none" {
		hosting.ExtraHosts = []string{"host.docker.internal:host-gateway"}
	}
	labels := map[string]string{
		podLabel: s.PodID, endpointLabel: s.Endpoint, lifeLabel: strconv.Itoa(s.Life), installationLabel: d.cfg.Installation,
	}
	if len(s.GPUs) > 0 {
		labels[gpusLabel] = strings.Join(s.gpuUUIDs(), ",")
	}
	return client.ContainerCreateOptions{
		Name: d.container(s.PodID),
		Config: &container.Config{
			Image: s.Spec.Image, Entrypoint: s.Spec.Entrypoint, Cmd: s.Spec.Command, Env: environ(s.Env), ExposedPorts: exposed,
			Labels: labels,
		},
		HostConfig: hosting,
	}, nil
}

// resources are the pod's limits.
func (d *Docker) resources(s Start) container.Resources {
	most := int64(MaxPIDs)
	r := container.Resources{NanoCPUs: int64(s.Spec.VCPUs * 1e9), Memory: int64(s.Spec.MemoryGB * (1 << 30)), PidsLimit: &most}
	d.mu.Lock()
	cdi := d.cdi
	d.mu.Unlock()
	var names, uuids []string
	amd := false
	for _, g := range s.GPUs {
		name := g.Vendor + ".com/gpu=" + g.UUID
		switch {
		case slices.Contains(cdi, name):
			names = append(names, name)
		case g.Vendor == pod.AMD:
			amd = true
		default:
			uuids = append(uuids, g.UUID)
		}
	}
	if len(names) > 0 {
		r.DeviceRequests = append(r.DeviceRequests, container.DeviceRequest{Driver: "cdi", DeviceIDs: names})
	}
	if len(uuids) > 0 { // by their ids: a count would give every container the first ones
		r.DeviceRequests = append(r.DeviceRequests, container.DeviceRequest{DeviceIDs: uuids, Capabilities: [][]string{{"gpu"}}})
	}
	if amd { // ROCR_VISIBLE_DEVICES says which of them
		for _, path := range []string{"/dev/kfd", "/dev/dri"} {
			r.Devices = append(r.Devices, container.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rwm"})
		}
	}
	return r
}

// portsOf are what "<port>/<http or tcp>" means to the engine, which picks the
// ports of the machine.
func portsOf(list []string) (network.PortSet, network.PortMap, error) {
	exposed, bindings := network.PortSet{}, network.PortMap{}
	for _, text := range list {
		number, kind, _ := strings.Cut(text, "/")
		p, err := network.ParsePort(number + "/tcp")
		if err != nil || p.Num() == 0 || (kind != "" && kind != "http" && kind != "tcp") {
			return nil, nil, fmt.Errorf("%w: port %q", pod.ErrInvalid, text)
		}
		exposed[p], bindings[p] = struct{}{}, []network.PortBinding{{HostIP: publishAddress}}
	}
	return exposed, bindings, nil
}

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
				pod.ErrInvalid, name, cmp.Or(strings.Join(d.cfg.Capabilities, ", "), "none"))
		}
	}
	return nil
}

// mounts are the pod's volume and the models of the machine. It returns a
// pod.ErrInvalid for a volume that no pod may have. The folder of the models is the
// operator's; one on another machine is made there by the engine.
func (d *Docker) mounts(s Start) ([]mount.Mount, error) {
	var all []mount.Mount
	if s.Volume != "" && s.Spec.VolumePath != "" {
		folder, err := d.mountable(s.Volume)
		if err != nil {
			return nil, fmt.Errorf("%w: network volume: %w", pod.ErrInvalid, err)
		}
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: folder, Target: s.Spec.VolumePath})
	}
	if s.ModelCache != "" {
		all = append(all, mount.Mount{
			Type: mount.TypeBind, Source: s.ModelCache, Target: pod.ModelCachePath, BindOptions: &mount.BindOptions{CreateMountpoint: d.Remote()},
		})
	}
	return all, nil
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
