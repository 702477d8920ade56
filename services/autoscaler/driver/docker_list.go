package driver

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"flightline/shared/pod"
)

const (
	// tailLines of stderr are asked for; tailBytes of them are kept.
	tailLines = 40
	// startsWithin is how long a container may be made and not started before
	// it counts as ended: whoever made it is gone.
	startsWithin = time.Minute
	// Exit codes that mean a signal: 128 and its number.
	signalled, mostSignals = 128, 64
)

// known is what was found out of a container; it holds while its state does.
type known struct {
	state    container.ContainerState
	instance Instance
}

func alive(state container.ContainerState) bool {
	switch state {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return true
	case container.StateCreated, container.StateRemoving, container.StateExited, container.StateDead:
	}
	return false
}

// Stop implements Driver. The image says which signal asks it to end.
func (d *Docker) Stop(ctx context.Context, podID string, grace time.Duration) error {
	seconds := int(math.Ceil(max(0, grace).Seconds()))
	_, err := d.engine.ContainerStop(ctx, d.container(podID), client.ContainerStopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		return explain(ctx, "stop pod "+podID, err)
	}
	return nil
}

// Forget implements Driver. One that runs is not forgotten.
func (d *Docker) Forget(ctx context.Context, podID string) error {
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	_, err := d.engine.ContainerRemove(call, d.container(podID), client.ContainerRemoveOptions{RemoveVolumes: true})
	if errdefs.IsConflict(err) {
		return fmt.Errorf("forget pod %s: %w: it runs", podID, pod.ErrConflict)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return explain(ctx, "forget pod "+podID, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.starts, podID)
	return nil
}

// List implements Driver.
func (d *Docker) List(ctx context.Context) ([]Instance, error) {
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	found, err := d.engine.ContainerList(call, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", installationLabel+"="+d.cfg.Installation),
	})
	if err != nil {
		return nil, unknown(ctx, "list the containers", err)
	}
	all, seen := make([]Instance, 0, len(found.Items)), map[string]known{}
	for _, c := range found.Items {
		k, err := d.know(call, c)
		if errdefs.IsNotFound(err) {
			continue // removed since
		}
		if err != nil {
			return nil, unknown(ctx, "look at container "+c.ID, err)
		}
		seen[c.ID] = k
		if k.instance.PodID != "" {
			all = append(all, k.instance)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = seen
	return all, nil
}

// unknown is explain for a read: whatever is wrong, nothing is known.
func unknown(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
}

// know looks at a container unless nothing changed since the last time. One
// that is about to be started is nobody yet.
func (d *Docker) know(ctx context.Context, c container.Summary) (known, error) {
	d.mu.Lock()
	k, found := d.known[c.ID]
	d.mu.Unlock()
	if found && k.state == c.State && c.State != container.StateCreated {
		return k, nil
	}
	k = known{state: c.State}
	if c.Labels[podLabel] == "" || c.State == container.StateCreated && time.Since(time.Unix(c.Created, 0)) < startsWithin {
		return k, nil
	}
	inspected, err := d.engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
	if err != nil {
		return k, err
	}
	k.instance = instanceOf(c, inspected.Container)
	if ports := k.instance.PortMappings; len(ports) > 0 {
		k.instance.PublicIP = d.cfg.PublicIP
	}
	if !k.instance.Running && k.instance.Reason == "" {
		k.instance.Reason = d.lastWords(ctx, c.ID)
	}
	if k.instance.Code < 0 && k.instance.Reason == "" {
		k.instance.Reason = "ended by a signal"
	}
	return k, nil
}

// instanceOf is the pod of a container.
func instanceOf(c container.Summary, i container.InspectResponse) Instance {
	x := Instance{PodID: c.Labels[podLabel], Endpoint: c.Labels[endpointLabel]}
	x.Life, _ = strconv.Atoi(c.Labels[lifeLabel]) // one of an earlier version has none: 0
	if i.State == nil {
		return x
	}
	s := i.State
	x.Running, x.Started = alive(s.Status), instant(s.StartedAt)
	if x.Running {
		if i.NetworkSettings != nil {
			x.PortMappings = mappings(i.NetworkSettings.Ports)
		}
		return x
	}
	x.Ended, x.Code = instant(s.FinishedAt), s.ExitCode
	switch {
	case s.Status == container.StateCreated:
		x.Ended, x.Code, x.Reason = time.Unix(c.Created, 0), -1, "it was never started"
	case s.OOMKilled:
		x.Code, x.Reason = -1, "killed: out of memory"
	case s.ExitCode > signalled && s.ExitCode <= signalled+mostSignals:
		x.Code = -1
	}
	if s.Error != "" {
		x.Reason = s.Error
	}
	return x
}

func instant(text string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text) // the zero time says that it is unknown
	return t
}

func mappings(ports network.PortMap) map[int]int {
	all := map[int]int{}
	for inside, bindings := range ports {
		for _, b := range bindings {
			if outside, err := strconv.Atoi(b.HostPort); err == nil {
				all[int(inside.Num())] = outside
			}
		}
	}
	return all
}

// lastWords is the end of what the container wrote to stderr, "" if the engine
// does not tell.
func (d *Docker) lastWords(ctx context.Context, id string) string {
	logs, err := d.engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStderr: true, Tail: strconv.Itoa(tailLines)})
	if err != nil {
		return ""
	}
	defer logs.Close()
	end := tail{most: tailBytes}
	if _, err := stdcopy.StdCopy(io.Discard, &end, logs); err != nil {
		return ""
	}
	return end.text()
}
