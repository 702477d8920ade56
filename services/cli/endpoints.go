package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
)

func (sh *shell) endpointCommand() *cobra.Command {
	c := &cobra.Command{Use: "endpoint", Short: "Make, show, change, pause and remove endpoints", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(sh.createEndpoint(), sh.listEndpoints(), sh.getEndpoint(), sh.updateEndpoint(), sh.deleteEndpoint(),
		sh.pauseEndpoint(), sh.resumeEndpoint(), sh.endpointScaling(), sh.listWorkers())
	return c
}

// needsVerb is the RunE of a noun on its own.
func needsVerb(cmd *cobra.Command, _ []string) error {
	return &UsageError{fmt.Errorf("%s: what should be done with it?", cmd.Name())}
}

// settings are the flags that create and update have in common.
type settings struct {
	spec   client.EndpointSpec
	fleet  fleetFlags
	counts [4]int
	// retries is the text of a list of pauses.
	retries string
}

func (s *settings) add(f *pflag.FlagSet) {
	f.StringVar(&s.spec.Name, "name", "", "name for people (default: the id)")
	f.DurationVar(&s.spec.ExecutionTimeout, "execution-timeout", 0, "for jobs that name none (5s to 168h; default 10m)")
	f.DurationVar(&s.spec.TTL, "ttl", 0, "for jobs that name none (10s to 168h; default 24h)")
	f.DurationVar(&s.spec.Retention, "retention", 0, "how long results of run are kept (1s to 168h; default 30m)")
	f.DurationVar(&s.spec.SyncRetention, "sync-retention", 0, "how long results of runsync are kept (1s to 5m; default 1m)")
	f.DurationVar(&s.spec.Lease, "lease", 0, "how long a silent worker keeps its job (10s to 1h; default 30s)")
	f.Int64Var(&s.spec.MaxQueueBytes, "max-queue-bytes", 0, "bytes that jobs that wait or run may take (33554432 to 1000000000000; default 10737418240, 10 GiB)")
	f.Int64Var(&s.spec.MaxQueueJobs, "max-queue-jobs", 0, "jobs that may wait or run (1 to 1000000000; default 1000000)")
	f.StringVar(&s.spec.StreamFormat, "stream-format", "", "form of /stream: auto, array or object (default auto)")
	f.Var((*limitsFlag)(&s.spec.Limits), "limit", "limit of an operation, like run=1000,200: requests in 10 s, and at once; 0 means none (repeatable; replaces all limits that the endpoint has)")
	f.StringVar(&s.retries, "webhook-retries", "", "pauses between attempts to deliver a webhook, like 10s,1m,1h (at most 20, of 1s to 24h); none means a single attempt (default 10s,10s)")
	s.fleet.add(f)
	for i, n := range s.names() {
		f.IntVar(&s.counts[i], n.flag, 0, n.help)
	}
}

type countFlag struct {
	flag, help string
	to         **int
}

func (s *settings) names() []countFlag {
	return []countFlag{
		{"max-lost-workers", "workers an attempt may lose before it is FAILED (1 to 100; default 3)", &s.spec.MaxLostWorkers},
		{"requests-per-worker", "by how much a running worker raises the rate limits", &s.spec.RequestsPerWorker},
		{"workers-min", "workers to keep", &s.spec.WorkersMin},
		{"workers-max", "workers to have at most; 0 turns the fleet off (default 3)", &s.spec.WorkersMax},
	}
}

// given is the spec of the flags that were typed; 0 is a value too.
func (s *settings) given(f *pflag.FlagSet, command []string) (client.EndpointSpec, error) {
	for i, n := range s.names() {
		*n.to = typed(f, n.flag, &s.counts[i])
	}
	var err error
	if f.Changed("webhook-retries") {
		if s.spec.WebhookRetries, err = pauses(s.retries); err != nil {
			return s.spec, err
		}
	}
	s.spec.Fleet, err = s.fleet.given(f, command)
	return s.spec, err
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
		Use: "create ID [-- COMMAND...]", Short: "Make an endpoint", Args: oneAndCommand,
		Example: "  flightline endpoint create upper --driver process --workers-max 3 -- python3 worker.py",
	}
	s.add(c.Flags())
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		spec, err := s.given(c.Flags(), args[1:])
		if err != nil {
			return err
		}
		spec.ID = args[0]
		e, err := api.Endpoints().Create(ctx, spec)
		if err != nil {
			return err
		}
		return sh.showEndpoint(e)
	})
	return c
}

func (sh *shell) updateEndpoint() *cobra.Command {
	var s settings
	c := &cobra.Command{Use: "update ID [-- COMMAND...]", Short: "Change an endpoint's settings", Args: oneAndCommand}
	s.add(c.Flags())
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		spec, err := s.given(c.Flags(), args[1:])
		if err != nil {
			return err
		}
		e, err := api.Endpoints().Update(ctx, args[0], spec)
		if err != nil {
			return err
		}
		return sh.showEndpoint(e)
	})
	return c
}

func (sh *shell) getEndpoint() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show an endpoint", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			e, err := api.Endpoints().Get(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.showEndpoint(e)
		}),
	}
}

func (sh *shell) listEndpoints() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the endpoints", Args: cobra.NoArgs,
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			list, err := api.Endpoints().List(ctx)
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "NAME", "CREATED"}}
			for _, e := range list {
				rows = append(rows, []string{e.ID, clean(e.Name), when(e.Created)})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) deleteEndpoint() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "delete ID", Short: "Remove an endpoint", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.Endpoints().Delete(ctx, args[0], force); err != nil {
				return err
			}
			return sh.show(map[string]string{"deleted": args[0]}, [][]string{{"DELETED", args[0]}})
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "cancel the jobs it still has")
	return c
}

func (sh *shell) showEndpoint(e *client.Endpoint) error {
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
	rows = append(rows, fleetRows(e)...)
	for _, operation := range slices.Sorted(maps.Keys(e.Limits)) {
		l := e.Limits[operation]
		rows = append(rows, []string{"LIMIT OF " + clean(operation), fmt.Sprintf("%d in 10 s, %d at once", l.Requests, l.Concurrent)})
	}
	return sh.show(e, rows)
}
