package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"flightline/services/autoscaler"
	"flightline/services/autoscaler/driver"
	"flightline/services/cli"
	"flightline/shared/pod"
	"flightline/shared/process"
	"flightline/shared/registry"
)

// Fleets are the settings of `flightline serve autoscaler`.
type Fleets struct {
	Drivers     string `flag:"drivers" env:"FLIGHTLINE_DRIVERS" help:"what starts workers here, with commas between them: process (an endpoint's command runs on this host with the rights of this program), docker; none only says how many there should be"`
	GatewayURL  string `flag:"gateway-url" env:"FLIGHTLINE_GATEWAY_URL" help:"http or https address at which the workers that are started reach the gateway; this process's own by default, and required where a driver starts workers without the role gateway beside it"`
	FleetFolder string `flag:"fleet-folder" env:"FLIGHTLINE_FLEET_FOLDER" default:".flightline/fleet" help:"folder of the driver process; made if it is not there, and used by one autoscaler"`
	Engine
	Ending
	reaper []string // the command line of ReaperCommand; none of a test
}

// Ending is how workers end.
type Ending struct {
	DrainTimeout time.Duration `flag:"worker-drain-timeout" env:"FLIGHTLINE_WORKER_DRAIN_TIMEOUT" default:"30s" help:"how long a worker whose pod or endpoint is stopped or deleted may go on with its jobs, at most 168h; then their jobs are given back"`
	FleetGrace   time.Duration `flag:"worker-shutdown-timeout" env:"FLIGHTLINE_WORKER_SHUTDOWN_TIMEOUT" old:"fleet-grace" default:"15s" help:"how long workers of the driver process, which end with this program, may go on with their jobs once it is asked to stop, at most 10m; then their jobs are given back. Containers go on"`
}

const (
	// maxFleetGrace bounds it: supervisors kill what takes longer to stop.
	maxFleetGrace = 10 * time.Minute
	// maxDrainTimeout is the longest execution timeout of a job.
	maxDrainTimeout = 168 * time.Hour
)

// Engine is where the driver docker starts containers.
type Engine struct {
	DockerHost         string `flag:"docker-host" env:"FLIGHTLINE_DOCKER_HOST" help:"address of the Docker engine; unix:///var/run/docker.sock by default"`
	DockerCapabilities string `flag:"docker-capabilities" env:"FLIGHTLINE_DOCKER_CAPABILITIES" help:"Linux capabilities that containers may ask for, with commas between them, like CHOWN,SETUID; ALL for all; none by default"`
	VolumeRoot         string `flag:"volume-root" env:"FLIGHTLINE_VOLUME_ROOT" help:"folder of the host whose folders may be network volumes of pods, for the roles control and autoscaler; pods get no folder of the host without it"`
	GPUs               string `flag:"gpus" env:"FLIGHTLINE_GPUS" help:"JSON file with the GPUs of this machine, in place of those that it says it has: [{\"uuid\":\"GPU-1\",\"vendor\":\"nvidia\",\"name\":\"NVIDIA L4\",\"memoryMb\":24576}]; read again every few seconds; see gpus.md"`
	ModelCache         string `flag:"model-cache-folder" env:"FLIGHTLINE_MODEL_CACHE_FOLDER" help:"folder of this machine for the models of endpoints with modelCache, in whose folder hub they are as Hugging Face's libraries keep them; made with the first worker that needs it; models in the data folder by default, or .flightline/models; see model-cache.md"`
	DockerNetwork      string `flag:"docker-network" env:"FLIGHTLINE_DOCKER_NETWORK" help:"network of the containers: bridge, host, none or a name; the engine's own by default, and host in dev, which listens where no other reaches it"`
}

// capabilities are the names that --docker-capabilities gives.
func (e Engine) capabilities() []string {
	return strings.FieldsFunc(e.DockerCapabilities, func(r rune) bool { return r == ',' || r == ' ' })
}

// readGPUs reads the file of --gpus; nil without one.
func (e Engine) readGPUs() func() ([]pod.GPU, error) {
	if e.GPUs == "" {
		return nil
	}
	return func() ([]pod.GPU, error) { return parseFile("gpus", e.GPUs, pod.ParseGPUs) }
}

// modelCache is the folder of the models as the drivers need it.
func (e Engine) modelCache() (string, error) {
	folder, err := filepath.Abs(cmp.Or(e.ModelCache, filepath.Join(".flightline", "models")))
	if err != nil {
		return "", fmt.Errorf("--model-cache-folder: %w", err)
	}
	return folder, nil
}

// fleets are the settings of a dev, which keeps all in its data folder.
func (c Config) fleets() Fleets {
	engine := c.Engine
	engine.DockerNetwork = cmp.Or(engine.DockerNetwork, "host")
	engine.ModelCache = cmp.Or(engine.ModelCache, filepath.Join(c.Data, "models"))
	return Fleets{Drivers: c.Drivers, FleetFolder: filepath.Join(c.Data, "fleet"), Engine: engine, Ending: c.Ending, reaper: c.reaper}
}

// fleets is what the role autoscaler is made from. The zero value has no driver.
type fleets struct {
	settings   Fleets
	names      []pod.Driver
	gatewayURL string
	drivers    []driver.Driver
}

// plan checks the settings.
func (f Fleets) plan(ownURL string) (*fleets, error) {
	if err := cmp.Or(upTo("worker-shutdown-timeout", f.FleetGrace, maxFleetGrace), upTo("worker-drain-timeout", f.DrainTimeout, maxDrainTimeout)); err != nil {
		return nil, err
	}
	names, err := f.names()
	return &fleets{settings: f, gatewayURL: cmp.Or(f.GatewayURL, ownURL), names: names}, err
}

// warnUnused warns of drivers where these roles start no workers.
func (f *fleets) warnUnused(roles []string, log *slog.Logger) {
	if len(f.names) > 0 && !slices.Contains(roles, roleAutoscaler) {
		log.Warn("--drivers has no effect: this process does not have the role autoscaler, which starts workers", "drivers", f.names, "roles", roles)
	}
}

// names are those of the drivers.
func (f Fleets) names() ([]pod.Driver, error) {
	var names []pod.Driver
	for text := range strings.SplitSeq(f.Drivers, ",") {
		switch name := pod.Driver(strings.TrimSpace(text)); name {
		case "", "none", pod.External:
		case pod.Process, pod.Docker:
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		default:
			return nil, wrong("drivers", text, "of process, docker, or none")
		}
	}
	return names, nil
}

// errDriver is a driver that cannot be made, which no waiting for NATS heals. Its text names
// the flag, as the beginning of "--drivers docker: why".
var errDriver = errors.New("--drivers")

// open makes the drivers that are not made yet, for the installation of this id. It may be
// called again after an error: those that are made already stay.
func (f *fleets) open(ctx context.Context, installation string, log *slog.Logger) error {
	for _, name := range f.names[len(f.drivers):] {
		var d driver.Driver
		var err error
		if name == pod.Process {
			d, err = driver.NewProcess(ctx, driver.ProcessConfig{Folder: filepath.Clean(f.settings.FleetFolder), Reaper: f.settings.reaper, Log: log})
		} else {
			d, err = driver.NewDocker(driver.DockerConfig{
				Host: f.settings.DockerHost, Network: f.settings.DockerNetwork, Installation: installation, Log: log,
				Capabilities: f.settings.capabilities(), VolumeRoot: f.settings.VolumeRoot,
			})
		}
		if err != nil {
			return fmt.Errorf("%w %s: %w", errDriver, name, err)
		}
		f.drivers = append(f.drivers, d)
	}
	return nil
}

// reaperName is the command that RunReaper is called by.
const reaperName = "fleet-reaper"

// reaperOf is the command line of ReaperCommand in the program that cmd is a
// command of; none if it has no such command.
func reaperOf(cmd *cobra.Command) []string {
	self, err := os.Executable()
	found, _, missing := cmd.Root().Find([]string{reaperName})
	if err != nil || missing != nil || found.Name() != reaperName {
		return nil
	}
	return []string{self, reaperName}
}

// ReaperCommand is `flightline fleet-reaper`, which the autoscaler starts beside
// its workers and no person does: it ends what they leave if the autoscaler is
// killed. It does not end on SIGTERM: its stdin says when to.
func ReaperCommand() *cobra.Command {
	return &cobra.Command{
		Use: reaperName + " MARK GRACE", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, err := time.ParseDuration(args[1])
			if err != nil {
				return &cli.UsageError{Err: fmt.Errorf("grace must be a duration such as 3s, got %q", args[1])}
			}
			return driver.RunReaper(context.WithoutCancel(cmd.Context()), cmd.InOrStdin(), args[0], grace)
		},
	}
}

// close stops the workers that the drivers run in this process. It may be called
// twice.
func (f *fleets) close(ctx context.Context) error {
	var errs []error
	for _, d := range f.drivers {
		switch c := d.(type) {
		case interface{ Close(context.Context) error }:
			errs = append(errs, c.Close(ctx))
		case io.Closer:
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// addAutoscaler adds the autoscaler, of which one leads.
func (n *node) addAutoscaler(ctx context.Context, p plan, js jetstream.JetStream) error {
	installation, err := registry.Installation(ctx, js)
	if err != nil {
		return err
	}
	if err := p.fleets.open(ctx, installation, p.log); err != nil {
		return err
	}
	instance := uuid.NewString()
	election, err := registry.NewElection(ctx, js, registry.RoleAutoscaler, instance, p.log)
	if err != nil {
		return err
	}
	n.addStanding(roleAutoscaler, election, instance)
	models, err := p.fleets.settings.modelCache()
	if err != nil {
		return err
	}
	s, err := autoscaler.New(
		autoscaler.Config{
			GatewayURL: p.fleets.gatewayURL, DrainTime: explicitZero(p.fleets.settings.DrainTimeout), Closing: explicitZero(p.fleets.settings.FleetGrace),
			GPUs: p.fleets.settings.readGPUs(), ModelCache: models, Log: p.log,
		},
		autoscaler.Deps{Queue: n.queue, Registry: n.registry, Events: n.events, Election: election, Drivers: p.fleets.drivers})
	if err != nil {
		return err
	}
	n.first = append(n.first, process.Part{
		Name: roleAutoscaler, Run: s.Run, Grace: p.fleets.settings.FleetGrace + process.StopGrace,
		Waiting: func() string { return "the jobs of workers that end with this process" },
	})
	return nil
}
