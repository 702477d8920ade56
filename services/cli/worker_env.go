package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

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
	c := &cobra.Command{
		Use: "env ENDPOINT", Short: "Let a RunPod worker in and print its environment", Args: cobra.ExactArgs(1),
		Long: "Make a token for a worker that is built on RunPod's SDK and print the whole\n" +
			"environment that it needs, as NAME=value lines. The token is a secret, and shown\n" +
			"this once; an earlier one of the same worker is worthless then.\n\n" +
			"BUCKET_ENDPOINT_URL, BUCKET_ACCESS_KEY_ID and BUCKET_SECRET_ACCESS_KEY are passed on\n" +
			"if they are set here.",
		Example: "  flightline worker env echo --worker w1 > w1.env && docker run --env-file w1.env IMAGE\n" +
			"  env $(flightline worker env echo) python handler.py",
	}
	c.Flags().StringVar(&format, "format", formEnv, "env (NAME=value), export (for the shell), docker (-e NAME=value) or json")
	c.Flags().StringVar(&id, "worker", "", "`id` of the worker; one is made up if there is none")
	c.Flags().StringVar(&gateway, "gateway-url", "", "`address` at which the worker reaches the gateway; else the server's")
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		write, ok := forms[format]
		if !ok {
			return &UsageError{fmt.Errorf("--format %s: must be env, export, docker or json", format)}
		}
		w, err := api.Workers().Create(ctx, args[0], id)
		if err != nil {
			return err
		}
		text, err := write(sh.environmentOf(w, strings.TrimRight(cmp.Or(gateway, api.BaseURL()), "/")))
		if err == nil {
			_, err = fmt.Fprintln(sh.Out, text)
		}
		return err
	})
	return c
}

// variable is one of a worker's environment.
type variable struct{ name, value string }

// environmentOf is what the SDK reads (runpod-compat §2.1). The addresses have
// the worker's id in them and need a ?, since the SDK appends its parameters; it
// puts the job's id in place of $ID.
func (sh *shell) environmentOf(w *client.Worker, base string) []variable {
	at := func(operation, rest string) string {
		return fmt.Sprintf("%s/v2/%s/%s/%s%s?gpu=any", base, w.Endpoint, operation, w.ID, rest)
	}
	environment := []variable{
		{"RUNPOD_WEBHOOK_GET_JOB", at("job-take", "")},
		{"RUNPOD_WEBHOOK_POST_OUTPUT", at("job-done", "/$ID")},
		{"RUNPOD_WEBHOOK_POST_STREAM", at("job-stream", "/$ID")},
		{"RUNPOD_WEBHOOK_PING", at("ping", "")},
		{"RUNPOD_PING_INTERVAL", fmt.Sprint(w.PingIntervalMs)},
		{"RUNPOD_AI_API_KEY", w.Token},
		{"RUNPOD_POD_ID", w.ID},
		{"RUNPOD_ENDPOINT_ID", w.Endpoint},
		{"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS", "true"},
		{"RUNPOD_LOG_LEVEL", "INFO"},
		{"RUNPOD_DEBUG_LEVEL", "INFO"},
	}
	for _, name := range []string{"BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY"} {
		if value := sh.Env[name]; value != "" {
			environment = append(environment, variable{name, value})
		}
	}
	return environment
}

// forms write an environment.
var forms = map[string]func([]variable) (string, error){
	formEnv: func(all []variable) (string, error) {
		return joined(all, "\n", func(v variable) string { return v.name + "=" + v.value })
	},
	formExport: func(all []variable) (string, error) {
		return joined(all, "\n", func(v variable) string { return "export " + v.name + "=" + quote(v.value) })
	},
	formDocker: func(all []variable) (string, error) {
		return joined(all, " ", func(v variable) string { return "-e " + quote(v.name+"="+v.value) })
	},
	formJSON: func(all []variable) (string, error) {
		values := make(map[string]string, len(all))
		for _, v := range all {
			values[v.name] = v.value
		}
		text, err := json.Marshal(values)
		return string(text), err
	},
}

func joined(all []variable, between string, form func(variable) string) (string, error) {
	parts := make([]string, 0, len(all))
	for _, v := range all {
		if strings.ContainsAny(v.value, "\r\n") {
			return "", errors.New(v.name + " has several lines; an environment cannot hold it")
		}
		parts = append(parts, form(v))
	}
	return strings.Join(parts, between), nil
}

func (sh *shell) drainWorker() *cobra.Command {
	return &cobra.Command{
		Use: "drain ENDPOINT WORKER", Short: "Give a worker no more jobs", Args: cobra.ExactArgs(2),
		Long: "Give a worker no more jobs, and answer its polls. The jobs that it has go on. Once\n" +
			"it runs none it can be stopped, and nothing is lost. 'flightline worker env' with\n" +
			"its id lets it in again.",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			w, err := api.Workers().Drain(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return sh.show(w, [][]string{{"DRAINING", w.ID}})
		}),
	}
}
