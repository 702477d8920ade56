package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/terminal"
)

func (sh *shell) endpointCommand() *cobra.Command {
	c := &cobra.Command{Use: "endpoint", Short: "Make, show, change, pause and remove endpoints"}
	c.AddCommand(sh.createEndpoint(), sh.updateEndpoint(), sh.deleteEndpoint(), sh.pauseEndpoint(), sh.endpointScaling(), sh.listWorkers(),
		onID(sh, "get", "Show an endpoint", (*client.Client).Endpoints, client.Endpoints.Get, endpointRows),
		onID(sh, "resume", "Hand out jobs again", (*client.Client).Endpoints, client.Endpoints.Resume,
			func(e *client.Endpoint) [][]string { return [][]string{{"RESUMED", e.ID}} }),
		listAllCommand(sh, "List the endpoints", []string{"ID", "NAME", "CREATED"}, (*client.Client).Endpoints, client.Endpoints.List,
			func(e client.Endpoint) []string { return []string{e.ID, clean(e.Name), when(e.Created)} }))
	return c
}

// settings are the flags that create and update have in common.
type settings struct {
	spec client.EndpointSpec
	// What has a form of its own is read by given.
	idle, sleep time.Duration
	env         []string
	retries     string
}

func (s *settings) add(f *pflag.FlagSet) {
	optional(f, f.StringVar, &s.spec.Name, "name", "name for people (default, and with '': the id)")
	mayBeEmpty(f, "name")
	bounded(f, &s.spec.ExecutionTimeout, "execution-timeout", job.MinExecutionTimeout, job.MaxExecutionTimeout, "for jobs that name none", "default 10m")
	bounded(f, &s.spec.TTL, "ttl", job.MinTTL, job.MaxTTL, "for jobs that name none", "default 24h")
	bounded(f, &s.spec.Retention, "retention", endpoint.MinRetention, endpoint.MaxRetention, "how long results of run are kept", "default 30m")
	bounded(f, &s.spec.SyncRetention, "sync-retention", endpoint.MinRetention, endpoint.MaxSyncRetention, "how long results of runsync are kept", "default 1m")
	bounded(f, &s.spec.Lease, "lease", endpoint.MinLease, endpoint.MaxLease, "how long a silent worker keeps its job", "default 30s")
	f.Int64Var(&s.spec.MaxQueueBytes, "max-queue-bytes", 0, "bytes that jobs that wait or run may take (33554432 to 1000000000000; default 10737418240, 10 GiB)")
	setBounds(f, "max-queue-bytes", endpoint.MinMaxQueueBytes, endpoint.MaxMaxQueueBytes)
	f.Int64Var(&s.spec.MaxQueueJobs, "max-queue-jobs", 0, "jobs that may wait or run (1 to 1000000000; default 1000000)")
	setBounds(f, "max-queue-jobs", 1, endpoint.MaxMaxQueueJobs)
	f.StringVar(&s.spec.StreamFormat, "stream-format", "", "form of /stream: auto, array or object (default auto)")
	f.Var((*limitsFlag)(&s.spec.Limits), "limit", "limit of an operation, like run=1000,200: requests in 10 s, and at once; 0 means none (repeatable; replaces all limits that the endpoint has)")
	f.StringVar(&s.retries, "webhook-retries", "", "pauses between attempts to deliver a webhook, like 10s,1m,1h (at most 20, of 1s to 24h); none means a single attempt (default 10s,10s)")
	optional(f, f.IntVar, &s.spec.MaxLostWorkers, "max-lost-workers", "workers an attempt may lose before it is FAILED (1 to 100; default 3)")
	optional(f, f.IntVar, &s.spec.RequestsPerWorker, "requests-per-worker", "by how much a running worker raises the rate limits")
	optional(f, f.IntVar, &s.spec.FailureBudget, "failure-budget", "jobs in a row that may fail for one cause until the endpoint is paused (0 to 1000; default 0: it never is)")
	optional(f, f.IntVar, &s.spec.WorkersMin, "workers-min", "workers to keep")
	optional(f, f.IntVar, &s.spec.WorkersMax, "workers-max", "workers to have at most; 0 turns the fleet off (default 3)")
	s.addFleet(f)
}

// addFleet adds the flags that say how workers are started.
func (s *settings) addFleet(f *pflag.FlagSet) {
	fleet := &s.spec.Fleet
	f.StringVar(&fleet.ScalerType, "scaler", "", "when to add workers: QUEUE_DELAY or REQUEST_COUNT (default QUEUE_DELAY)")
	optional(f, f.IntVar, &fleet.ScalerValue, "scaler-value", "seconds that a job may wait, or jobs per worker (1 to 100000; default 4)")
	bounded(f, &s.idle, "idle-timeout", endpoint.MinIdleTimeout, endpoint.MaxIdleTimeout, "how long a worker that is not needed may idle", "default 5s")
	bounded(f, &s.sleep, "sleep-timeout", 0, endpoint.MaxSleepTimeout, "how long such a worker sleeps before it is stopped, if it can sleep", "default 0s: it does not sleep")
	f.StringVar(&fleet.Driver, "driver", "", "what starts workers: process, docker or external (default docker with --image, process with a command, else external: nothing does)")
	optional(f, f.StringVar, &fleet.TemplateID, "template", "`id` of the template that workers are made from; '' means none")
	optional(f, f.StringVar, &fleet.Image, "image", "image of the workers' container; '' means none, or that of the template")
	f.StringArrayVar(&s.env, "env", nil, "variable of the workers, as `NAME=VALUE` (repeatable; replaces all that the endpoint has)")
	optional(f, f.IntVar, &fleet.GPUs, "gpus", "GPUs of one worker")
	addGPUFlags(f, &fleet.GPU)
	f.StringSliceVar(&fleet.ModelCache, "model-cache", nil, modelCacheHelp)
	mayBeEmpty(f, "template", "image", "model-cache")
	f.StringVar(&fleet.Rollout, "rollout", "", "how a new version comes: replace, or canary:10% to try it on that share of the workers first (1 to 99; default replace)")
	optional(f, f.Float64Var, &fleet.VCPUs, "vcpus", "virtual CPUs of one worker; 0 means no limit")
	optional(f, f.Float64Var, &fleet.MemoryGB, "memory", "memory of one worker in GB; 0 means no limit")
}

// given is the spec of the flags that were typed; command follows "--".
func (s *settings) given(f *pflag.FlagSet, command []string) (client.EndpointSpec, error) {
	var errs [4]error
	if f.Changed("webhook-retries") {
		s.spec.WebhookRetries, errs[0] = pauses(s.retries)
	}
	s.spec.Fleet.IdleSeconds, errs[1] = seconds(f, "idle-timeout", s.idle)
	s.spec.Fleet.SleepSeconds, errs[2] = seconds(f, "sleep-timeout", s.sleep)
	s.spec.Fleet.Env, errs[3] = variables(s.env)
	if len(command) > 0 {
		s.spec.Fleet.Command = command
	}
	return s.spec, cmp.Or(errs[:]...)
}

// pauses reads a list of durations; "none" is the empty one.
func pauses(text string) ([]time.Duration, error) {
	list := []time.Duration{}
	if text == "none" {
		return list, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return nil, &UsageError{fmt.Errorf("--webhook-retries %q: want durations with commas between them, or none", text)}
		}
		list = append(list, d)
	}
	return list, nil
}

// pausesText is what pauses reads.
func pausesText(list []time.Duration) string {
	switch {
	case list == nil:
		return "10s,10s"
	case len(list) == 0:
		return "none"
	}
	parts := make([]string, len(list))
	for i, d := range list {
		parts[i] = d.String()
	}
	return strings.Join(parts, ",")
}

func (sh *shell) createEndpoint() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use: "create ID [-- COMMAND...]", Short: "Make an endpoint",
		Long: "Make an endpoint. COMMAND is a worker, which asks for jobs by itself: a program built on\n" +
			"RunPod's SDK or the Go SDK. For a program that runs once for each job, as in 'flightline\n" +
			"worker', it is: flightline worker ID -- PROGRAM, with --data DIR if 'flightline dev' has it.",
		Example: "  flightline endpoint create upper --driver process --workers-max 3 -- python3 worker.py",
	}
	s.add(c.Flags())
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Endpoint, error) {
		spec, err := s.given(c.Flags(), args[1:])
		if err != nil {
			return nil, err
		}
		if spec.Fleet.Driver, err = driverFor(spec.Fleet, c.Flags().Changed("driver")); err != nil {
			return nil, err
		}
		spec.ID = args[0]
		return api.Endpoints().Create(ctx, spec)
	}, endpointRows)
	return c
}

func (sh *shell) updateEndpoint() *cobra.Command {
	var s settings
	c := &cobra.Command{Use: "update ID [-- COMMAND...]", Short: "Change an endpoint's settings"}
	s.add(c.Flags())
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Endpoint, error) {
		spec, err := s.given(c.Flags(), args[1:])
		if err != nil {
			return nil, err
		}
		return api.Endpoints().Update(ctx, args[0], spec)
	}, endpointRows)
	return c
}

// errHasJobs is what the API refuses while an endpoint has jobs, in the words of a command.
var errHasJobs = errors.New("the endpoint has jobs; --force cancels and deletes them")

func (sh *shell) deleteEndpoint() *cobra.Command {
	var force, yes bool
	c := deleteCommand(sh, "Remove an endpoint", (*client.Client).Endpoints, func(endpoints client.Endpoints, ctx context.Context, id string) error {
		if !yes && !force && !terminal.Confirm(ctx, sh.In, sh.Err, "Remove endpoint "+id+", its settings and its results?") {
			return errors.New("nothing was removed")
		}
		err := endpoints.Delete(ctx, id, force)
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == "endpoint_busy" {
			return errHasJobs
		}
		return err
	})
	c.Long = "Remove an endpoint. On a terminal it asks first, unless --yes or --force is given."
	c.Flags().BoolVar(&force, "force", false, "cancel the jobs it still has")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func endpointRows(e *client.Endpoint) [][]string {
	rows := [][]string{
		{"ID", e.ID},
		{"NAME", clean(e.Name)},
		{"EXECUTION TIMEOUT", e.ExecutionTimeout.String()},
		{"TTL", e.TTL.String()},
		{"RETENTION", e.Retention.String()},
		{"SYNC RETENTION", e.SyncRetention.String()},
		{"LEASE", e.Lease.String()},
		{"MAX LOST WORKERS", fmt.Sprint(e.MaxLostWorkers)},
		{"MAX QUEUE BYTES", fmt.Sprint(e.MaxQueueBytes)},
		{"MAX QUEUE JOBS", fmt.Sprint(e.MaxQueueJobs)},
		{"REQUESTS PER WORKER", fmt.Sprint(e.RequestsPerWorker)},
		{"WORKERS", fmt.Sprintf("%d to %d", e.WorkersMin, e.WorkersMax)},
		{"STREAM FORMAT", e.StreamFormat},
		{"WEBHOOK RETRIES", pausesText(e.WebhookRetries)},
		{"CREATED", when(e.Created)},
		{"VERSION", fmt.Sprint(e.Version)},
	}
	if e.FailureBudget > 0 {
		rows = append(rows, []string{"FAILURE BUDGET", fmt.Sprintf("%d in a row", e.FailureBudget)})
	}
	rows = append(rows, fleetRows(e)...)
	for _, operation := range slices.Sorted(maps.Keys(e.Limits)) {
		l := e.Limits[operation]
		rows = append(rows, []string{"LIMIT OF " + clean(operation), fmt.Sprintf("%d in 10 s, %d at once", l.Requests, l.Concurrent)})
	}
	return rows
}

// seconds is the value of a flag in seconds, nil unless it was typed.
func seconds(f *pflag.FlagSet, name string, value time.Duration) (*int, error) {
	switch {
	case !f.Changed(name):
		return nil, nil
	case value%time.Second != 0:
		return nil, &UsageError{fmt.Errorf("--%s %s: must be whole seconds", name, value)}
	}
	return new(int(value / time.Second)), nil
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
	return append(rows, present([]row{
		{"SLEEP TIMEOUT", (time.Duration(f.SleepSeconds) * time.Second).String(), f.SleepSeconds != 0},
		{"TEMPLATE", f.TemplateID, f.TemplateID != ""},
		{"IMAGE", f.Image, f.Image != ""},
		{"COMMAND", strings.Join(f.Command, " "), len(f.Command) > 0},
		{"ENV", strings.Join(env, " "), len(env) > 0},
		{"OF ONE WORKER", fmt.Sprintf("%d GPUs, %v vCPUs, %v GB", f.GPUs, f.VCPUs, f.MemoryGB), f.GPUs > 0 || f.VCPUs > 0 || f.MemoryGB > 0},
		{"MODEL CACHE", strings.Join(f.ModelCache, " "), len(f.ModelCache) > 0},
		{"NEEDS", gpuText(f.GPU), gpuText(f.GPU) != ""},
		{"KEEPS ASLEEP", sleepShareText(f.GPU), f.GPU.SleepShare != nil},
		{"GPU PRIORITY", fmt.Sprint(f.GPU.Priority), f.GPU.Priority != 0},
		{"MIN HOLD", f.GPU.MinHold.String(), f.GPU.MinHold != 0},
		{"MAX SWAP WAIT", f.GPU.MaxSwapWait.String(), f.GPU.MaxSwapWait != 0},
		{"ROLLOUT", f.Rollout, f.Rollout != ""},
		{"CANARY", canaryText(f.Canary), f.Canary != nil},
		{"PAUSED UNTIL", when(f.PausedUntil), !f.PausedUntil.IsZero()},
		{"PAUSED BECAUSE", f.PauseReason, f.PauseReason != ""},
	})...)
}

func canaryText(c *client.Canary) string {
	if c == nil {
		return ""
	}
	return c.String()
}

func (sh *shell) pauseEndpoint() *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use: "pause ID", Short: "Hand out no jobs for a while; they are still accepted",
		Example: "  flightline endpoint pause echo --for 10m",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Endpoint, error) {
			return api.Endpoints().Pause(ctx, args[0], length)
		}, func(e *client.Endpoint) [][]string {
			return [][]string{{"PAUSED", e.ID}, {"UNTIL", when(e.Fleet.PausedUntil)}}
		}),
	}
	bounded(c.Flags(), &length, "for", time.Second, endpoint.MaxPause, "how long", "default: until 'resume'")
	return c
}

func (sh *shell) endpointScaling() *cobra.Command {
	var limit int
	c := listCommand(sh, "scaling ID", "List what the autoscaler decided, the newest first", []string{"AT", "WANTED", "CURRENT", "QUEUED", "REASON", "WHY"},
		func(ctx context.Context, api *client.Client, args []string) ([]client.ScalingDecision, error) {
			return api.Endpoints().Scaling(ctx, args[0], limit)
		},
		func(d client.ScalingDecision) []string {
			return []string{when(d.At), fmt.Sprint(d.Wanted), fmt.Sprint(d.Current), fmt.Sprint(d.Queued), clean(d.Reason), clean(d.Text)}
		})
	c.Flags().IntVar(&limit, "limit", 0, "how many at most (1 to 100; default 20)")
	setBounds(c.Flags(), "limit", 1, 100)
	return c
}

// driverFor is the driver of a new endpoint. What its workers are made from
// decides unless the driver was given: nothing starts an external worker, so
// an image or a command would never be used.
func driverFor(f client.FleetSpec, typed bool) (string, error) {
	given := func(text *string) bool { return text != nil && *text != "" }
	image, command := given(f.Image), len(f.Command) > 0
	switch {
	case typed || !image && !command:
		return f.Driver, nil
	case image: // a command runs in the image
		return "docker", nil
	}
	if given(f.TemplateID) {
		return "", &UsageError{errors.New("--driver is missing: give process or docker beside --template and a command")}
	}
	return "process", nil
}
