package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
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
	turn := d.starting(s.PodID)
	turn.Lock()
	defer turn.Unlock()
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	runs, err := d.clear(ctx, s.PodID)
	if err != nil || runs {
		return err
	}
	id, err := d.create(ctx, body)
	if err != nil || id == "" {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if _, err := d.engine.ContainerStart(call, id, client.ContainerStartOptions{}); err != nil {
		d.discard(ctx, id)
		return refused(ctx, "start the container of pod "+s.PodID, err)
	}
	return nil
}

// clear reports whether the pod runs, and removes its container if it does not.
func (d *Docker) clear(ctx context.Context, podID string) (runs bool, err error) {
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	found, err := d.engine.ContainerInspect(call, d.container(podID), client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, explain(ctx, "look for the container of pod "+podID, err)
	}
	if state := found.Container.State; state != nil && alive(state.Status) {
		return true, nil
	}
	// By its id: what another one made meanwhile is left alone.
	_, err = d.engine.ContainerRemove(call, found.Container.ID, client.ContainerRemoveOptions{RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return false, explain(ctx, "remove the ended container of pod "+podID, err)
	}
	return false, nil
}

// create makes the container, fetching its image as the policy has it. The id
// is "" if another one of us was faster, and starts it.
func (d *Docker) create(ctx context.Context, body client.ContainerCreateOptions) (id string, err error) {
	if d.cfg.Pull == PullAlways {
		if err := d.pull(ctx, body.Config.Image); err != nil {
			return "", err
		}
	}
	made, err := d.tryCreate(ctx, body)
	if errdefs.IsNotFound(err) && d.cfg.Pull == PullMissing {
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

func (d *Docker) tryCreate(ctx context.Context, body client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return d.engine.ContainerCreate(ctx, body)
}

// pull fetches an image, and lets others start meanwhile. That this fails says
// nothing of the engine: images come from elsewhere.
func (d *Docker) pull(ctx context.Context, image string) error {
	<-d.turns
	defer func() { d.turns <- struct{}{} }()
	call, cancel := context.WithTimeout(ctx, pullWithin)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callWithin)
	defer cancel()
	if _, err := d.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true}); err != nil {
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
	exposed, bindings, err := d.ports(s.Spec.Ports)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	env := make([]string, 0, len(s.Env))
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, name+"="+s.Env[name])
	}
	hosting := &container.HostConfig{
		NetworkMode: container.NetworkMode(d.cfg.Network), PortBindings: bindings,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources:     resources(s.Spec), Mounts: volumes,
		CapDrop: []string{"ALL"}, CapAdd: s.Spec.Capabilities, SecurityOpt: []string{"no-new-privileges"},
	}
	if d.cfg.Network != "host" && d.cfg.Network != "none" {
		hosting.ExtraHosts = []string{"host.docker.internal:host-gateway"}
	}
	return client.ContainerCreateOptions{
		Name: d.container(s.PodID),
		Config: &container.Config{
			Image: s.Spec.Image, Entrypoint: s.Spec.Entrypoint, Cmd: s.Spec.Command, Env: env, ExposedPorts: exposed,
			Labels: map[string]string{
				podLabel: s.PodID, endpointLabel: s.Endpoint, lifeLabel: strconv.Itoa(s.Life), installationLabel: d.cfg.Installation,
			},
		},
		HostConfig: hosting,
	}, nil
}

// resources are the pod's limits.
func resources(s pod.Spec) container.Resources {
	most := int64(MaxPIDs)
	r := container.Resources{NanoCPUs: int64(s.VCPUs * 1e9), Memory: int64(s.MemoryGB * (1 << 30)), PidsLimit: &most}
	if s.GPUs > 0 {
		r.DeviceRequests = []container.DeviceRequest{{Count: s.GPUs, Capabilities: [][]string{{"gpu"}}}}
	}
	return r
}

// ports are what "<port>/<http or tcp>" means to the engine, which picks the
// ports of the machine.
func (d *Docker) ports(list []string) (network.PortSet, network.PortMap, error) {
	exposed, bindings := network.PortSet{}, network.PortMap{}
	for _, text := range list {
		number, kind, _ := strings.Cut(text, "/")
		p, err := network.ParsePort(number + "/tcp")
		if err != nil || p.Num() == 0 || (kind != "" && kind != "http" && kind != "tcp") {
			return nil, nil, fmt.Errorf("%w: port %q", pod.ErrInvalid, text)
		}
		exposed[p], bindings[p] = struct{}{}, []network.PortBinding{{HostIP: d.publish}}
	}
	return exposed, bindings, nil
}
