package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
)

// fleetFlags are the flags that say how workers are started.
type fleetFlags struct {
	spec          client.FleetSpec
	value, gpus   int
	idle          time.Duration
	vcpus, memory float64
	env           []string
}

func (s *fleetFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.spec.ScalerType, "scaler", "", "when to add workers: QUEUE_DELAY or REQUEST_COUNT (default QUEUE_DELAY)")
	f.IntVar(&s.value, "scaler-value", 0, "seconds that a job may wait, or jobs per worker (1 to 100000; default 4)")
	f.DurationVar(&s.idle, "idle-timeout", 0, "how long a worker that is not needed may idle (1s to 1h; default 5s)")
	f.StringVar(&s.spec.Driver, "driver", "", "what starts workers: process, docker or external (default external: nothing does)")
	f.StringVar(&s.spec.TemplateID, "template", "", "`id` of the template that workers are made from")
	f.StringVar(&s.spec.Image, "image", "", "image of the workers' container")
	f.StringArrayVar(&s.env, "env", nil, "variable of the workers, as `NAME=VALUE` (repeatable; replaces all that the endpoint has)")
	f.IntVar(&s.gpus, "gpus", 0, "GPUs of one worker")
	f.Float64Var(&s.vcpus, "vcpus", 0, "virtual CPUs of one worker; 0 means no limit")
	f.Float64Var(&s.memory, "memory", 0, "memory of one worker in GB; 0 means no limit")
}

// typed is the value of a flag, nil unless it was typed: 0 is a value too.
func typed[T any](f *pflag.FlagSet, name string, value *T) *T {
	if f.Changed(name) {
		return value
	}
	return nil
}

// given is the spec of the flags that were typed; command follows "--".
func (s *fleetFlags) given(f *pflag.FlagSet, command []string) (client.FleetSpec, error) {
	s.spec.ScalerValue = typed(f, "scaler-value", &s.value)
	s.spec.GPUs, s.spec.VCPUs, s.spec.MemoryGB = typed(f, "gpus", &s.gpus), typed(f, "vcpus", &s.vcpus), typed(f, "memory", &s.memory)
	if f.Changed("idle-timeout") {
		if s.idle%time.Second != 0 {
			return s.spec, &UsageError{fmt.Errorf("--idle-timeout %s: must be whole seconds", s.idle)}
		}
		s.spec.IdleSeconds = new(int(s.idle / time.Second))
	}
	if len(command) > 0 {
		s.spec.Command = command
	}
	var err error
	s.spec.Env, err = variables(s.env)
	return s.spec, err
}

// oneAndCommand takes an id, and after "--" a command.
func oneAndCommand(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// fleetRows show what starts workers, as far as it is set.
func fleetRows(e *client.Endpoint) [][]string {
	f := e.Fleet
	var env []string
	for name, value := range f.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	rows := [][]string{
		{"SCALER", fmt.Sprintf("%s %d", f.ScalerType, f.ScalerValue)},
		{"IDLE TIMEOUT", (time.Duration(f.IdleSeconds) * time.Second).String()},
		{"DRIVER", f.Driver},
	}
	for _, row := range []struct {
		name, text string
		has        bool
	}{
		{"TEMPLATE", f.TemplateID, f.TemplateID != ""},
		{"IMAGE", f.Image, f.Image != ""},
		{"COMMAND", strings.Join(f.Command, " "), len(f.Command) > 0},
		{"ENV", strings.Join(env, " "), len(env) > 0},
		{"OF ONE WORKER", fmt.Sprintf("%d GPUs, %v vCPUs, %v GB", f.GPUs, f.VCPUs, f.MemoryGB), f.GPUs > 0 || f.VCPUs > 0 || f.MemoryGB > 0},
		{"PAUSED UNTIL", when(f.PausedUntil), !f.PausedUntil.IsZero()},
	} {
		if row.has {
			rows = append(rows, []string{row.name, clean(row.text)})
		}
	}
	return rows
}

// longestPause is the API's.
const longestPause = 8760 * time.Hour

func (sh *shell) pauseEndpoint() *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use: "pause ID", Short: "Hand out no jobs for a while; they are still accepted", Args: cobra.ExactArgs(1),
		Example: "  flightline endpoint pause echo --for 10m",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if length != 0 && (length < time.Second || length > longestPause) {
				return &UsageError{fmt.Errorf("--for %s: must be 1s to %s", length, longestPause)}
			}
			e, err := api.Endpoints().Pause(ctx, args[0], length)
			if err != nil {
				return err
			}
			return sh.show(e, [][]string{{"PAUSED", e.ID}, {"UNTIL", when(e.Fleet.PausedUntil)}})
		}),
	}
	c.Flags().DurationVar(&length, "for", 0, "how long, 1s to 8760h (default: until 'resume')")
	return c
}

func (sh *shell) resumeEndpoint() *cobra.Command {
	return &cobra.Command{
		Use: "resume ID", Short: "Hand out jobs again", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			e, err := api.Endpoints().Resume(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.show(e, [][]string{{"RESUMED", e.ID}})
		}),
	}
}

func (sh *shell) endpointScaling() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "scaling ID", Short: "List what the autoscaler decided, the newest first", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			list, err := api.Endpoints().Scaling(ctx, args[0], limit)
			if err != nil {
				return err
			}
			rows := [][]string{{"AT", "WANTED", "CURRENT", "QUEUED", "REASON", "WHY"}}
			for _, d := range list {
				rows = append(rows, []string{when(d.At), fmt.Sprint(d.Wanted), fmt.Sprint(d.Current), fmt.Sprint(d.Queued), clean(d.Reason), clean(d.Text)})
			}
			return sh.show(list, rows)
		}),
	}
	c.Flags().IntVar(&limit, "limit", 0, "how many at most (1 to 100; default 20)")
	return c
}
