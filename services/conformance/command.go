package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/terminal"
	"flightline/shared/tlsconfig"
)

// renamed are the former names of flags, which still work.
var renamed = map[string]pflag.NormalizedName{"base-url": "url", "key": "api-key"}

func normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return cmp.Or(renamed[name], pflag.NormalizedName(name))
}

// Command is `flightline conform`. The environment's FLIGHTLINE_URL and
// FLIGHTLINE_API_KEY are the defaults of --url and --api-key.
func Command(environment map[string]string) *cobra.Command {
	var (
		cfg               Config
		output, workerEnv string
		secured           tlsconfig.Client
	)
	c := &cobra.Command{
		Use: "conform", Short: "Hold a server, Flightline or not, against the contract",
		Long: "Play the contract's scenarios against a server over HTTP, and answer with a table of\n" +
			"what holds. It ends with code 1 if a scenario failed. A scenario that needs what is not\n" +
			"there, such as an endpoint whose jobs fail, is skipped, and its line says why.\n\n" +
			"Nearly everything can be played where this command is the worker as well: --make has a\n" +
			"Flightline make an endpoint for that, and deletes it at the end; --worker-env is for any\n" +
			"server of RunPod's worker protocol. The jobs are real ones, and some are large.",
		Example: "  flightline conform --url http://127.0.0.1:8080 --api-key KEY --make\n" +
			"  flightline worker env mine > w.env && flightline conform --url URL --api-key KEY --worker-env w.env\n" +
			"  flightline conform --url URL --api-key KEY --endpoint ID --only 'run*' -o json",
	}
	f := c.Flags()
	f.SetNormalizeFunc(normalize)
	f.StringVar(&cfg.BaseURL, "url", environment["FLIGHTLINE_URL"], "`address` of the queue API, before /v2 [FLIGHTLINE_URL]")
	f.StringVar(&cfg.Key, "api-key", "", "API `key` [FLIGHTLINE_API_KEY]")
	secured.Flags(f.StringVar, environment)
	f.StringVar(&cfg.Endpoint, "endpoint", "echo", "`id` of an endpoint whose handler returns its input")
	f.StringVar(&cfg.Slow, "slow-endpoint", "", "`id` of one whose jobs run for 10 s to 60 s")
	f.StringVar(&cfg.Failing, "failing-endpoint", "", "`id` of one whose jobs fail")
	f.StringVar(&cfg.Streaming, "streaming-endpoint", "", "`id` of one whose jobs stream")
	f.StringVar(&cfg.Idle, "idle-endpoint", "", "`id` of one without workers")
	f.BoolVar(&cfg.Purge, "purge", false, "all jobs that wait at the idle endpoint may be purged")
	f.StringVar(&workerEnv, "worker-env", "", "be the worker that this `file` of NAME=value lines describes, as 'flightline worker env' prints it")
	f.BoolVar(&cfg.Make, "make", false, "make an endpoint by Flightline's REST API, be its worker, and delete it")
	f.StringVar(&cfg.RestURL, "rest-url", "", "`address` of the REST API, before /v1; with --make that of --url if not given")
	f.StringVar(&cfg.RestKey, "rest-key", "", "`key` of the REST API, if it is another one")
	f.StringVar(&cfg.Pod, "pod", "", "`id` of a pod to look up, else a job's worker")
	f.StringVar(&cfg.HookListen, "webhook-listen", "", "`address` at which webhooks are received; for a server on this machine a port of 127.0.0.1")
	f.StringVar(&cfg.HookURL, "webhook-url", "", "`address` at which the server reaches it, if it is another one")
	f.BoolVar(&cfg.Rates, "rates", false, "go over rate limits")
	f.BoolVar(&cfg.Retention, "retention", false, "wait, up to six minutes, for results to be forgotten")
	f.StringSliceVar(&cfg.Only, "only", nil, "play the scenarios of this `name` alone; * stands for any part of it")
	f.StringSliceVar(&cfg.Skip, "skip", nil, "leave out the scenarios of this `name`; * as above")
	f.IntVar(&cfg.Together, "together", 24, "how many scenarios are played at once")
	f.StringVarP(&output, "output", "o", "table", "output `format`: table or json")
	// A wrong command line is found here, before anything is tried, so that
	// the exit code says so.
	c.Args = func(_ *cobra.Command, args []string) error {
		cfg.Key = cmp.Or(cfg.Key, environment["FLIGHTLINE_API_KEY"]) // no default: help would show it
		var wrong error
		cfg.TLS, wrong = secured.Config()
		return errors.Join(cobra.NoArgs(c, args), checkOutput(output), wrong, cfg.open(workerEnv))
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := runShown(cmd.Context(), cfg, cmd.ErrOrStderr())
		if len(report.Scenarios) > 0 {
			err = errors.Join(err, report.write(cmd.OutOrStdout(), output), report.Err())
		}
		if errors.Is(err, ErrUnreachable) {
			err = fmt.Errorf("%w: %w", client.ErrUnreachable, err)
		}
		return err
	}
	return c
}

// runShown is Run with a line on a terminal that says how far it is.
func runShown(ctx context.Context, cfg Config, terminalOut io.Writer) (report Report, err error) {
	line := terminal.NewLive(terminalOut)
	cfg.Progress = func(played, all int) { line.Set(fmt.Sprintf("%d of %d scenarios played", played, all)) }
	err = line.During(func() error {
		report, err = Run(ctx, cfg)
		return err
	})
	return report, err
}

func checkOutput(format string) error {
	if format == "table" || format == "json" {
		return nil
	}
	return fmt.Errorf("-o %s: must be table or json", format)
}

// open reads the worker's environment and checks the whole.
func (c *Config) open(workerEnv string) error {
	if workerEnv != "" {
		text, err := os.ReadFile(workerEnv)
		if err != nil {
			return fmt.Errorf("--worker-env: %w", err)
		}
		c.WorkerEnv = readEnv(string(text))
	}
	return c.Check()
}

// write writes the report.
func (r Report) write(out io.Writer, format string) error {
	if format == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	rows := [][]string{{"SCENARIO", "SECTION", "RESULT", "TOOK", "DETAIL"}}
	for _, one := range r.Scenarios {
		took := ""
		if one.Outcome != Skip {
			took = fmt.Sprintf("%.1fs", (time.Duration(one.TookMs) * time.Millisecond).Seconds())
		}
		rows = append(rows, []string{one.Name, one.Section, string(one.Outcome), took, one.Detail})
	}
	if err := terminal.WrappedTable(out, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped: %s\n", r.Passed, r.Failed, r.Skipped, r.BaseURL)
	return err
}
