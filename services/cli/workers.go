package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/pod"
)

func (sh *shell) listWorkers() *cobra.Command {
	c := listCommand(sh, "workers ENDPOINT", "List an endpoint's workers", []string{"ID", "PROTOCOL", "STATE", "PHASE", "DRAINING", "RUNNING"},
		func(ctx context.Context, api *client.Client, args []string) ([]client.Worker, error) {
			return api.Workers().List(ctx, args[0])
		},
		func(w client.Worker) []string {
			draining := ""
			if w.Draining {
				draining = "yes"
			}
			return []string{clean(w.ID), clean(w.Protocol), known(clean(w.State), w.State != ""), phaseOf(w.Startup), draining, clean(strings.Join(w.Running, " "))}
		})
	c.Long = "List the workers of an endpoint: those that were let in with a token, whether they\n" +
		"live or not, and those that speak NATS and live."
	return c
}

func (sh *shell) drainWorker() *cobra.Command {
	return &cobra.Command{
		Use: "drain ENDPOINT WORKER", Short: "Give a worker no more jobs",
		Long: "Give a worker no more jobs; those that it has go on.\n\n" +
			"A worker of 'flightline worker' or of the Go SDK ends by itself once it runs none,\n" +
			"with exit code 0. The polls of a worker on RunPod's SDK are answered: once\n" +
			"it runs none it can be stopped, and nothing is lost. 'flightline worker env' with\n" +
			"its id lets it in again.",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Worker, error) {
			return api.Workers().Drain(ctx, args[0], args[1])
		}, func(w *client.Worker) [][]string { return [][]string{{"DRAINING", w.ID}} }),
	}
}

// The forms of an environment.
const (
	formEnv    = "env"
	formExport = "export"
	formDocker = "docker"
	formJSON   = "json"
)

// workerVerbs are the commands below `flightline worker` that manage workers
// and run none.
func (sh *shell) workerVerbs() []*cobra.Command {
	return []*cobra.Command{sh.client(sh.workerEnv()), sh.client(sh.drainWorker())}
}

func (sh *shell) workerEnv() *cobra.Command {
	var format, id, gateway string
	var rotate bool
	c := &cobra.Command{
		Use: "env ENDPOINT", Short: "Let a RunPod worker in and print its environment",
		Long: "Make a token for a worker that is built on RunPod's SDK and print the whole\n" +
			"environment that it needs, as NAME=value lines. The token is a secret, and shown\n" +
			"this once. It revokes the earlier token of the same worker, so a worker that runs is\n" +
			"refused without --rotate.\n\n" +
			"What the endpoint's env sets is in it. If that has no bucket, BUCKET_ENDPOINT_URL,\n" +
			"BUCKET_ACCESS_KEY_ID, BUCKET_SECRET_ACCESS_KEY and BUCKET_NAME are passed on as they\n" +
			"are set here.",
		Example: "  flightline worker env echo --worker w1 > w1.env && docker run --env-file w1.env IMAGE\n" +
			"  env $(flightline worker env echo) python handler.py",
	}
	c.Flags().StringVar(&format, "format", formEnv, "env (NAME=value), export (for the shell), docker (-e NAME=value) or json")
	c.Flags().StringVar(&id, "worker", "", "`id` of the worker; made up if not given")
	c.Flags().BoolVar(&rotate, "rotate", false, "make the token also if the worker runs: its requests are refused from then on, and its jobs go to others")
	c.Flags().StringVar(&gateway, "gateway-url", "", "`address` at which the worker reaches the gateway; else the server's")
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		if sh.flags.output == "json" {
			format = formJSON
		}
		write, ok := forms[format]
		if !ok {
			return &UsageError{fmt.Errorf("--format %s: must be env, export, docker or json", format)}
		}
		if !rotate && id != "" {
			drain := append([]string{sh.Program, "worker", "drain", args[0], id}, typedWords(c.PersistentFlags())...)
			if err := refuseRunning(ctx, api, args[0], id, strings.Join(drain, " ")); err != nil {
				return err
			}
		}
		w, err := api.Workers().Create(ctx, args[0], id)
		if err != nil {
			return err
		}
		text, err := write(environmentOf(sh.Env, w, strings.TrimRight(cmp.Or(gateway, api.BaseURL()), "/")))
		if err == nil {
			_, err = fmt.Fprintln(sh.Out, text)
		}
		if err != nil { // nothing has the token
			err = errors.Join(err, api.Workers().Revoke(ctx, args[0], w.ID))
		}
		return err
	})
	return c
}

// refuseRunning returns an error if the worker runs: a new token cuts it off. One
// that was drained, with the command drain, and holds no job loses nothing.
func refuseRunning(ctx context.Context, api *client.Client, endpoint, id, drain string) error {
	list, err := api.Workers().List(ctx, endpoint)
	if err != nil {
		return err
	}
	for _, w := range list {
		if w.ID != id || w.State == "" {
			continue
		}
		switch {
		case w.Draining && len(w.Running) > 0:
			return fmt.Errorf("worker %s drains, and a new token would cut it off: wait until it has ended its jobs, or give --rotate", id)
		case !w.Draining:
			return fmt.Errorf("worker %s runs (%s), and a new token would cut it off: drain it first (%s), or give --rotate. "+
				"A worker counts as running for 15 s after its last ping", id, clean(w.State), drain)
		}
	}
	return nil
}

// bucketVariables are what the SDK's uploads and worker-comfyui read.
var bucketVariables = []string{"BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY", "BUCKET_NAME"}

// environmentOf is what the worker needs, what its endpoint sets, and the
// bucket of this shell. The shell's is taken whole or not at all: one server's
// address and another's keys make no bucket.
func environmentOf(shell map[string]string, w *client.Worker, base string) []pod.Variable {
	env := maps.Clone(w.Env)
	if env == nil {
		env = map[string]string{}
	}
	if !slices.ContainsFunc(bucketVariables, func(name string) bool { return env[name] != "" }) {
		for _, name := range bucketVariables {
			if value := shell[name]; value != "" {
				env[name] = value
			}
		}
	}
	return pod.WorkerEnvironment(pod.Worker{
		BaseURL: base, Endpoint: w.Endpoint, ID: w.ID, Token: w.Token,
		PingInterval: time.Duration(w.PingIntervalMs) * time.Millisecond, Env: env,
	})
}

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// forms write an environment.
var forms = map[string]func([]pod.Variable) (string, error){
	formEnv: func(all []pod.Variable) (string, error) {
		return joined(all, "\n", func(v pod.Variable) string { return v.Name + "=" + v.Value })
	},
	formExport: func(all []pod.Variable) (string, error) {
		for _, v := range all { // the shell runs what the lines say
			if !shellName.MatchString(v.Name) {
				return "", fmt.Errorf("variable %q: no shell can hold that name; use --format docker or json", clean(v.Name))
			}
		}
		return joined(all, "\n", func(v pod.Variable) string { return "export " + v.Name + "=" + quote(v.Value) })
	},
	formDocker: func(all []pod.Variable) (string, error) {
		return joined(all, " ", func(v pod.Variable) string { return "-e " + quote(v.Name+"="+v.Value) })
	},
	formJSON: func(all []pod.Variable) (string, error) {
		values := make(map[string]string, len(all))
		for _, v := range all {
			values[v.Name] = v.Value
		}
		text, err := json.Marshal(values)
		return string(text), err
	},
}

func joined(all []pod.Variable, between string, form func(pod.Variable) string) (string, error) {
	parts := make([]string, 0, len(all))
	for _, v := range all {
		if strings.ContainsAny(v.Value, "\r\n") {
			return "", errors.New(v.Name + " has several lines; an environment cannot hold it")
		}
		parts = append(parts, form(v))
	}
	return strings.Join(parts, between), nil
}
