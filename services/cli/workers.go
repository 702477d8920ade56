package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func (sh *shell) listWorkers() *cobra.Command {
	return &cobra.Command{
		Use: "workers ENDPOINT", Short: "List an endpoint's workers", Args: cobra.ExactArgs(1),
		Long: "List the workers of an endpoint: those that were let in with a token, whether they\n" +
			"live or not, and those that speak NATS and live.",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			list, err := api.Workers().List(ctx, args[0])
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "PROTOCOL", "STATE", "DRAINING", "RUNNING"}}
			for _, w := range list {
				draining := ""
				if w.Draining {
					draining = "yes"
				}
				rows = append(rows, []string{clean(w.ID), clean(w.Protocol), clean(w.State), draining, clean(strings.Join(w.Running, " "))})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) drainWorker() *cobra.Command {
	return &cobra.Command{
		Use: "drain ENDPOINT WORKER", Short: "Give a worker no more jobs", Args: cobra.ExactArgs(2),
		Long: "Give a worker no more jobs; those that it has go on.\n\n" +
			"A worker of 'flightline worker' or of the Go SDK ends by itself once it runs none,\n" +
			"with exit code 0. The polls of one that is built on RunPod's SDK are answered: once\n" +
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
