package conform

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/certs"
	"flightline/shared/client"
)

// Command is `flightline conform`. The environment's FLIGHTLINE_URL and
// FLIGHTLINE_API_KEY are the defaults of --base-url and --key.
func Command(environment map[string]string) *cobra.Command {
	var cfg Config
	var output, workerEnv string
	var secured certs.Client
	c := &cobra.Command{
		Use: "conform", Short: "Hold a server, Flightline or not, against the contract",
		Long: "Play the contract's scenarios against a server over HTTP, and answer with a table of\n" +
			"what holds. It ends with code 1 if a scenario failed. What a scenario needs and is not\n" +
			"there, an endpoint whose jobs fail for instance, is told, and the scenario skipped.\n\n" +
			"Nearly everything can be played where this command is the worker as well: --make has a\n" +
			"Flightline make an endpoint for that, and deletes it at the end; --worker-env is for any\n" +
			"server of RunPod's worker protocol. The jobs are real ones, and some are large.",
		Example: "  flightline conform --base-url http://127.0.0.1:8080 --key KEY --make\n" +
			"  flightline worker env mine > w.env && flightline conform --base-url URL --key KEY --worker-env w.env\n" +
			"  flightline conform --base-url URL --key KEY --endpoint ID --only 'run*' -o json",
	}
	f := c.Flags()
	f.StringVar(&cfg.BaseURL, "base-url", environment["FLIGHTLINE_URL"], "`address` of the queue API, before /v2 [FLIGHTLINE_URL]")
	f.StringVar(&cfg.Key, "key", "", "API `key` [FLIGHTLINE_API_KEY]")
	secured.Flags(f.StringVar, environment)
	f.StringVar(&cfg.Endpoint, "endpoint", "echo", "`id` of an endpoint whose handler returns its input")
	f.StringVar(&cfg.Slow, "slow-endpoint", "", "`id` of one whose jobs run for 10 s to 60 s")
	f.StringVar(&cfg.Failing, "failing-endpoint", "", "`id` of one whose jobs fail")
	f.StringVar(&cfg.Streaming, "streaming-endpoint", "", "`id` of one whose jobs stream")
	f.StringVar(&cfg.Idle, "idle-endpoint", "", "`id` of one without workers")
	f.BoolVar(&cfg.Purge, "purge", false, "all jobs that wait at the idle endpoint may be purged")
	f.StringVar(&workerEnv, "worker-env", "", "be the worker that this `file` of NAME=value lines describes, as 'flightline worker env' prints it")
	f.BoolVar(&cfg.Make, "make", false, "make an endpoint by Flightline's REST API, be its worker, and delete it")
	f.StringVar(&cfg.RestURL, "rest-url", "", "`address` of the REST API, before /v1; with --make the base address if not given")
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
	// What was typed wrongly is found here, before anything is tried, so that
	// the exit code says so.
	c.Args = func(_ *cobra.Command, args []string) error {
		cfg.Key = cmp.Or(cfg.Key, environment["FLIGHTLINE_API_KEY"]) // no default: help would show it
		var wrong error
		cfg.TLS, wrong = secured.Config()
		return errors.Join(cobra.NoArgs(c, args), checkOutput(output), wrong, cfg.open(workerEnv))
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := Run(cmd.Context(), cfg)
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
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SCENARIO\tSECTION\tRESULT\tTOOK\tDETAIL") // Flush tells
	for _, one := range r.Scenarios {
		took := ""
		if one.Outcome != Skip {
			took = fmt.Sprintf("%.1fs", (time.Duration(one.TookMs) * time.Millisecond).Seconds())
		}
		line := strings.Join([]string{one.Name, one.Section, string(one.Outcome), took, one.Detail}, "\t")
		_, _ = fmt.Fprintln(table, strings.TrimRight(line, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped: %s\n", r.Passed, r.Failed, r.Skipped, r.BaseURL)
	return err
}
