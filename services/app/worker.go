package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/services/worker"
	"flightline/shared/endpoint"
	"flightline/shared/process"
	"flightline/shared/telemetry"
	sdk "flightline/shared/worker"
)

// WorkConfig are the settings of `flightline worker`.
type WorkConfig struct {
	URL         string        `flag:"url" env:"FLIGHTLINE_WORKER_URL" help:"http or https address to which each job is POSTed, instead of a command"`
	Upstream    string        `flag:"openai-upstream" env:"FLIGHTLINE_WORKER_OPENAI_UPSTREAM" help:"http or https address of a server that speaks OpenAI's API, like vLLM, SGLang, llama.cpp or Ollama, to which the jobs of the OpenAI route are passed on; with a command, that starts the server"`
	Health      string        `flag:"upstream-health" env:"FLIGHTLINE_WORKER_UPSTREAM_HEALTH" help:"path that the server answers with 2xx while it is ready; /health by default, and /v1/models where that is 404"`
	UpstreamKey string        `flag:"upstream-key" env:"FLIGHTLINE_WORKER_UPSTREAM_KEY" secret:"yes" help:"API key for the server"`
	Sleep       string        `flag:"sleep-path" env:"FLIGHTLINE_WORKER_SLEEP_PATH" help:"path of the server to which POST puts it to sleep while no job needs it, like '/sleep?level=1' of vLLM; with --wake-path"`
	Wake        string        `flag:"wake-path" env:"FLIGHTLINE_WORKER_WAKE_PATH" help:"path of the server to which POST wakes it, like /wake_up of vLLM"`
	SleepRun    string        `flag:"sleep-command" env:"FLIGHTLINE_WORKER_SLEEP_COMMAND" help:"shell command that frees the GPU while no job needs the worker, instead of a path; with --wake-command"`
	WakeRun     string        `flag:"wake-command" env:"FLIGHTLINE_WORKER_WAKE_COMMAND" help:"shell command after which the worker can run jobs again"`
	Concurrency int           `flag:"concurrency" env:"FLIGHTLINE_WORKER_CONCURRENCY" default:"1" help:"jobs to run at once, 1 to 10000"`
	Grace       time.Duration `flag:"grace" env:"FLIGHTLINE_WORKER_GRACE" default:"10s" help:"how long running jobs may go on after SIGTERM; then they are given back"`
	ID          string        `flag:"id" env:"FLIGHTLINE_WORKER_ID" help:"id of this worker, as of its pod; RUNPOD_POD_ID where a driver started it for this endpoint, else a random one"`
	Data        string        `flag:"data" env:"FLIGHTLINE_DATA" default:".flightline" help:"data folder of the running dev, which is used if no address of NATS is given"`
	NATS
	LogLevel  string `flag:"log-level" env:"FLIGHTLINE_LOG_LEVEL" default:"info" help:"least important lines to log: debug, info, warn or error"`
	LogFormat string `flag:"log-format" env:"FLIGHTLINE_LOG_FORMAT" default:"text" help:"form of log lines: text or json"`
	kept      bool   // a driver keeps what it prints
}

// WorkerCommand is `flightline worker`.
func WorkerCommand(environment map[string]string, version string) *cobra.Command {
	cfg := new(WorkConfig)
	c := &cobra.Command{
		Use: "worker ENDPOINT [-- COMMAND...]", Short: "Run an endpoint's jobs by a command, an HTTP server or a model server",
		Long: "Run an endpoint's jobs by a command, started for each job, or by an HTTP server\n" +
			"on this machine.\n\n" +
			"The job comes as one JSON document on standard input, or as the body of a POST.\n" +
			"The last line of output, a JSON document, is the job's output; lines of JSON\n" +
			"before it are chunks of its stream. If no line is JSON, the text is the output. A\n" +
			"command that exits with another code than 0 fails the job with the end of its\n" +
			"standard error.\n\n" +
			"With --openai-upstream, the jobs of /v2/ENDPOINT/openai/v1/… are passed on to a\n" +
			"server that speaks OpenAI's API, while it is ready. A command after -- starts that\n" +
			"server, and ends with the worker.",
		Example: "  flightline worker upper -- jq -c '{text: .input.text | ascii_upcase}'\n" +
			"  flightline worker upper --url http://127.0.0.1:9000/run --concurrency 4\n" +
			"  flightline worker chat --openai-upstream http://127.0.0.1:11434 --concurrency 8",
	}
	configure(c, environment, cfg, func(cmd *cobra.Command, args []string) error {
		if environment["RUNPOD_ENDPOINT_ID"] == args[0] { // a driver started it
			cfg.ID = cmp.Or(cfg.ID, environment["RUNPOD_POD_ID"])
			cfg.kept = cfg.ID != "" && cfg.ID == environment["RUNPOD_POD_ID"]
		}
		return traced(cmd, environment, "flightline-worker", version, cfg.LogLevel, cfg.LogFormat, func(log *slog.Logger, tracer *telemetry.Tracer) error {
			return work(cmd.Context(), *cfg, args[0], args[1:], childEnvironment(environment), version, cmd.OutOrStdout(), log, tracer)
		})
	})
	return c
}

// work runs jobs until ctx ends. One line goes to out when it is ready.
func work(ctx context.Context, cfg WorkConfig, id string, command, env []string, version string, out io.Writer, log *slog.Logger, tracer *telemetry.Tracer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	bus, err := cfg.find(cfg.Data)
	if err != nil {
		return err
	}
	s, err := worker.New(worker.Config{
		Worker: sdk.Config{
			Endpoint: id, ID: cfg.ID, Concurrency: cfg.Concurrency, Grace: explicitZero(cfg.Grace), Version: version, Tracer: tracer, LogsKept: cfg.kept,
			NATSURL: bus.NATSURL, CredsFile: bus.NATSCreds, User: bus.NATSUser, Password: bus.NATSPassword,
			InboxPrefix: bus.NATSInbox, TLS: bus.tls(),
			OnReady: func() { _, _ = fmt.Fprintf(out, "flightline worker ready: %s\n", id) },
		},
		Command: command, Env: env, URL: cfg.URL,
		Upstream: worker.Upstream{URL: cfg.Upstream, Health: cfg.Health, Key: cfg.UpstreamKey},
		Sleep:    worker.Sleep{Path: cfg.Sleep, WakePath: cfg.Wake, Command: cfg.SleepRun, WakeCommand: cfg.WakeRun},
	}, log)
	if errors.Is(err, worker.ErrConfig) {
		return &cli.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	return withExitCode(process.Run(ctx, log, process.Part{Name: "worker", Run: s.Run, Grace: cfg.Grace + process.StopGrace, Waiting: s.Waiting}))
}

func (c WorkConfig) check() error {
	switch {
	case c.Concurrency < 1 || c.Concurrency > sdk.MaxConcurrency:
		return wrong("concurrency", c.Concurrency, fmt.Sprintf("1 to %d", sdk.MaxConcurrency))
	case c.Grace < 0:
		return wrong("grace", c.Grace, "0s or more")
	}
	return cmp.Or(urlOf("url", c.URL, "http", "https"), urlOf("openai-upstream", c.Upstream, "http", "https"), c.NATS.check())
}

// find returns these settings, or if they name no address those of a dev that
// runs with this data folder.
func (n NATS) find(data string) (NATS, error) {
	if n.NATSURL != "" {
		return n, nil
	}
	r, err := cli.FindRunning(data)
	switch {
	case errors.Is(err, cli.ErrNotRunning):
		return n, &cli.CodedError{Code: cli.ExitUnreachable, Err: fmt.Errorf("%w; where is NATS? Give --nats-url, or --data with the folder of the running dev", err)}
	case err != nil:
		return n, err
	case r.NATSURL == "":
		return n, &cli.CodedError{Code: cli.ExitUnreachable, Err: errors.New("the running dev lets nobody in over NATS: it was started with --nats-listen off")}
	}
	return NATS{NATSURL: r.NATSURL, NATSUser: r.NATSUser, NATSPassword: r.NATSPassword, NATSCA: r.TLSCert}, nil
}

// withExitCode gives an error of the worker SDK the exit code of the command line, as
// package cli has it for client commands.
func withExitCode(err error) error {
	switch {
	case errors.Is(err, sdk.ErrConfig):
		return &cli.UsageError{Err: err}
	case errors.Is(err, endpoint.ErrNotFound):
		return &cli.CodedError{Code: cli.ExitNotFound, Err: err}
	case errors.Is(err, nats.ErrNoServers):
		return &cli.CodedError{Code: cli.ExitUnreachable, Err: err}
	}
	return err
}

// secret reports whether a variable is none of a job's command's business: all
// that says where Flightline's parts are and which process this is, files of that included,
// the token of a worker, and what lets spans in somewhere.
func secret(name string) bool {
	switch {
	case slices.Contains(cli.PodVariables, name):
		return false
	case strings.HasPrefix(name, "OTEL_EXPORTER_OTLP_"):
		return strings.HasSuffix(name, "HEADERS") || strings.HasSuffix(name, "_CLIENT_KEY")
	}
	return strings.HasPrefix(name, "FLIGHTLINE_") || strings.HasPrefix(name, "NATS_") || name == "RUNPOD_AI_API_KEY"
}

// childEnvironment is the environment without our secrets.
func childEnvironment(environment map[string]string) []string {
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		if !secret(name) {
			entries = append(entries, name+"="+environment[name])
		}
	}
	return entries
}
