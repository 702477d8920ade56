package driver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"flightline/shared/host"
	"flightline/shared/pod"
)

// DockerConfig says which engine runs the pods, and how. The zero value is good.
type DockerConfig struct {
	// Host is the address of the engine, "" means unix:///var/run/docker.sock.
	// Who reaches it is root on that machine.
	Host string
	// Installation distinguishes our containers from those of another Flightline on
	// the same engine. "" means "flightline".
	Installation string
	// Network is the containers' network mode: "bridge", "host", "none", or
	// the name of a network. "" is the engine's own.
	Network string
	// Capabilities are those of Linux that pods may ask for, "ALL" means all. A
	// container has none that its pod did not ask for.
	Capabilities []string
	// VolumeRoot is the folder whose folders pods may have as volumes. "" means
	// that no pod gets a folder of the machine.
	VolumeRoot string
	// Log gets what goes wrong. nil means silence.
	Log *slog.Logger

	// callTimeout bounds one request to the engine, pulls and stops aside. 0 means 20 s.
	callTimeout time.Duration
}

// Labels of our containers.
const (
	podLabel          = "flightline.pod"
	endpointLabel     = "flightline.endpoint"
	lifeLabel         = "flightline.life"
	gpusLabel         = "flightline.gpus" // UUIDs
	installationLabel = "flightline.installation"
)

// publishAddress is where ports of pods are published: only this machine reaches them.
var publishAddress = netip.AddrFrom4([4]byte{127, 0, 0, 1})

const (
	defaultEngine       = "unix:///var/run/docker.sock"
	defaultInstallation = "flightline"
	defaultCallTimeout  = 20 * time.Second
	// pullTimeout bounds fetching an image.
	pullTimeout = 30 * time.Minute
	// maxConcurrentStarts bounds the containers that are made and started side by side.
	// Those whose image is being fetched are not counted.
	maxConcurrentStarts = 16
)

// Docker runs pods as containers of a Docker engine. The engine knows them by
// labels, so that they survive this program, and two Dockers on one engine of
// one installation manage the same pods; a container is named after its pod,
// which is why there is never a second one.
//
// A container gets the pod's image, command, environment and limits, all GPUs
// or some, its ports on 127.0.0.1 at ports that the engine picks, the network
// volume, if it is below VolumeRoot, and the models of the machine. It has no
// capabilities but those that its pod asks for and the machine allows, gains no
// privileges by programs that are setuid, and has at most MaxPIDs processes and
// threads. Its image is fetched if the engine does not have it. It reaches the
// engine's machine as host.docker.internal. It is never restarted by the engine.
type Docker struct {
	cfg    DockerConfig
	log    *slog.Logger
	engine *client.Client
	turns  chan struct{} // as many as start now
	starts sync.Map      // by pod: a mutex, since one start of a pod runs at a time

	mu    sync.Mutex
	cdi   []string         // names of devices that the engine knows by CDI; nil before Machine
	known map[string]known // by the container's id
}

// NewDocker returns a driver that Close ends. It does not need the engine yet.
func NewDocker(cfg DockerConfig) (*Docker, error) {
	cfg.Host, cfg.Installation = cmp.Or(cfg.Host, defaultEngine), cmp.Or(cfg.Installation, defaultInstallation)
	cfg.Log, cfg.callTimeout = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), cmp.Or(cfg.callTimeout, defaultCallTimeout)
	engine, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return nil, fmt.Errorf("docker engine %s: %w", cfg.Host, err)
	}
	return &Docker{
		cfg: cfg, log: cfg.Log, engine: engine,
		turns: make(chan struct{}, maxConcurrentStarts), known: map[string]known{},
	}, nil
}

// Close lets go of the engine; the containers go on.
func (d *Docker) Close() error { return d.engine.Close() }

// Name implements Driver.
func (d *Docker) Name() pod.Driver { return pod.Docker }

// Remote implements Remote: the engine is not reached by a socket of this machine.
func (d *Docker) Remote() bool { return !strings.HasPrefix(d.cfg.Host, "unix:") }

// Machine implements Driver. The id is the engine's.
func (d *Docker) Machine(ctx context.Context) (string, pod.Machine, error) {
	call, cancel := context.WithTimeout(ctx, d.cfg.callTimeout)
	defer cancel()
	said, err := d.engine.Info(call, client.InfoOptions{})
	if err != nil {
		return "", pod.Machine{}, explain(ctx, "ask the engine what it is", err)
	}
	var facts pod.Machine
	if !d.Remote() { // it is the machine that we see
		facts = host.Look(ctx, d.log)
	}
	facts.Hostname, facts.OS, facts.Arch = said.Info.Name, said.Info.OSType, archOf(said.Info.Architecture)
	facts.VCPUs, facts.MemoryGB = float64(said.Info.NCPU), math.Round(float64(said.Info.MemTotal)/(1<<30)*100)/100
	var cdi []string
	for _, device := range said.Info.DiscoveredDevices {
		if device.Source == "cdi" {
			cdi = append(cdi, device.ID)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cdi = cdi
	sum := sha256.Sum256([]byte(said.Info.ID))
	return "docker-" + hex.EncodeToString(sum[:8]), facts, nil
}

// archOf spells what uname says as Go does.
func archOf(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

func (d *Docker) container(podID string) string { return d.cfg.Installation + "-" + podID }

// explain says what was done, and whether the engine is away: it is unless it
// said what is wrong.
func explain(ctx context.Context, what string, err error) error {
	if ctx.Err() == nil && (client.IsErrConnectionFailed(err) || errors.Is(errdefs.Resolve(err), errdefs.ErrUnknown) ||
		errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err)) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// refused is explain for what the pod's spec made impossible.
func refused(ctx context.Context, what string, err error) error {
	if errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) {
		return fmt.Errorf("%s: %w: %w", what, pod.ErrInvalid, err)
	}
	return explain(ctx, what, err)
}

const (
	// tailLines of stderr are asked for; tailBytes of them are kept.
	tailLines = 40
	// createdTimeout is how long a container may be made and not started before
	// it counts as ended: its maker is gone.
	createdTimeout = time.Minute
	// inspectTimeout bounds a request about one container: while the engine starts one, as
	// when a GPU's hook hangs, it answers none. What a list says of it is enough for
	// inspectRest then.
	inspectTimeout = 2 * time.Second
	inspectRest    = 30 * time.Second
	// Exit codes that mean a signal: 128 and its number.
	signalled, maxSignal = 128, 64
)

// known is what was found out of a container; it holds while its state does.
type known struct {
	state    container.ContainerState
	instance Instance
	silent   time.Time // when the engine did not answer, zero if it did
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
	call, cancel := context.WithTimeout(ctx, max(0, grace)+d.cfg.callTimeout)
	defer cancel()
	_, err := d.engine.ContainerStop(call, d.container(podID), client.ContainerStopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		return explain(ctx, "stop pod "+podID, err)
	}
	return nil
}

// Forget implements Driver. It refuses a pod that runs.
func (d *Docker) Forget(ctx context.Context, podID string) error {
	call, cancel := context.WithTimeout(ctx, d.cfg.callTimeout)
	defer cancel()
	_, err := d.engine.ContainerRemove(call, d.container(podID), client.ContainerRemoveOptions{RemoveVolumes: true})
	if errdefs.IsConflict(err) {
		return fmt.Errorf("forget pod %s: %w: it runs", podID, pod.ErrConflict)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return explain(ctx, "forget pod "+podID, err)
	}
	d.starts.Delete(podID)
	return nil
}

// List implements Driver.
func (d *Docker) List(ctx context.Context) ([]Instance, error) {
	call, cancel := context.WithTimeout(ctx, d.cfg.callTimeout)
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
// that is about to be started is nobody yet. One of which the engine says nothing
// holds up no other.
func (d *Docker) know(ctx context.Context, c container.Summary) (known, error) {
	d.mu.Lock()
	k, found := d.known[c.ID]
	d.mu.Unlock()
	if found && k.state == c.State && (time.Since(k.silent) < inspectRest || k.silent.IsZero() && c.State != container.StateCreated) {
		return k, nil
	}
	k = known{state: c.State}
	if c.Labels[podLabel] == "" || c.State == container.StateCreated && time.Since(time.Unix(c.Created, 0)) < createdTimeout {
		return k, nil
	}
	within, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	inspected, err := d.engine.ContainerInspect(within, c.ID, client.ContainerInspectOptions{})
	switch {
	case err == nil:
	case errdefs.IsNotFound(err), ctx.Err() != nil, client.IsErrConnectionFailed(err) && within.Err() == nil:
		return k, err
	default:
		d.log.WarnContext(ctx, "the engine does not answer for a container, which is taken for what the list says", "container", c.ID, "state", c.State, "err", err)
		k.silent, k.instance = time.Now(), d.summaryOf(c)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.known[c.ID] = k // also if the list is given up
		return k, nil
	}
	k.instance = instanceOf(c, inspected.Container)
	if ports := k.instance.PortMappings; len(ports) > 0 {
		k.instance.PublicIP = publishAddress.String()
	}
	if !k.instance.Running && k.instance.Reason == "" {
		k.instance.Reason = d.lastWords(within, inspected.Container)
	}
	if k.instance.Code < 0 && k.instance.Reason == "" {
		k.instance.Reason = "ended by a signal"
	}
	return k, nil
}

// labelled is what the labels of a container say of its pod.
func labelled(c container.Summary) Instance {
	x := Instance{PodID: c.Labels[podLabel], Endpoint: c.Labels[endpointLabel]}
	x.Life, _ = strconv.Atoi(c.Labels[lifeLabel]) // one of an earlier version has none: 0
	if gpus := c.Labels[gpusLabel]; gpus != "" {
		x.GPUs = strings.Split(gpus, ",")
	}
	return x
}

// summaryOf is the pod of a container as a list has it. A container that was made may run: its
// start goes on in the engine.
func (d *Docker) summaryOf(c container.Summary) Instance {
	x := labelled(c)
	if x.Running = alive(c.State) || c.State == container.StateCreated; !x.Running {
		x.Code, x.Reason = -1, "the engine does not say how it ended"
		return x
	}
	x.PortMappings = map[int]int{}
	for _, p := range c.Ports {
		if p.PublicPort > 0 {
			x.PortMappings[int(p.PrivatePort)], x.PublicIP = int(p.PublicPort), publishAddress.String()
		}
	}
	return x
}

// instanceOf is the pod of a container.
func instanceOf(c container.Summary, i container.InspectResponse) Instance {
	x := labelled(c)
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
	x.Code = s.ExitCode
	switch {
	case s.Status == container.StateCreated:
		x.Code, x.Reason = -1, "it was never started"
	case s.OOMKilled:
		x.Code, x.Reason = -1, "killed: out of memory"
	case s.ExitCode > signalled && s.ExitCode <= signalled+maxSignal:
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

// lastWords is the end of what the container wrote to stderr, without the secrets of its
// environment, "" if the engine does not tell.
func (d *Docker) lastWords(ctx context.Context, c container.InspectResponse) string {
	env := map[string]string{}
	if c.Config != nil {
		for _, variable := range c.Config.Env {
			name, value, _ := strings.Cut(variable, "=")
			env[name] = value
		}
	}
	logs, err := d.engine.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStderr: true, Tail: strconv.Itoa(tailLines)})
	if err != nil {
		return ""
	}
	defer logs.Close()
	end := tail{conceal: pod.Concealer(env)}
	if _, err := stdcopy.StdCopy(io.Discard, &end, logs); err != nil {
		return ""
	}
	return end.text()
}
