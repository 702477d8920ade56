package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/job"
)

// logsCommand is `flightline logs`.
func logsCommand(sh *shell) *cobra.Command {
	var o client.LogsOptions
	var since, id string
	var follow bool
	c := &cobra.Command{
		Use: "logs ENDPOINT", Short: "Print what an endpoint's workers print",
		Long: "Print what the workers of an endpoint printed: all that the server keeps, or what\n" +
			"was printed since a time, of all workers, of one, or of one job. With --follow,\n" +
			"stay and print what comes next; alone, --follow begins with that. Of a job, it\n" +
			"begins with its first line and ends a little after the job. A line with # says\n" +
			"what happened to the worker: its start, sleeps, wakes, drain and end.\n\n" +
			"With -o json each line is a JSON document with its time, worker, job and level.",
		Example: "  flightline logs echo --since 10m\n  flightline logs echo --job 01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f --follow",
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			var err error
			if o.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}
			if o.Job, o.Once = job.ID(id), !follow; o.Once && o.After == "" && since == "" {
				o.After = "0"
			}
			return printLines(ctx, sh, c.Logs(args[0], o), o.Worker == "")
		}),
	}
	c.Flags().StringVar(&since, "since", "", "leave out what was printed before this `time`: how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z")
	c.Flags().StringVar(&id, "job", "", "only lines that name this job, by its `id`")
	c.Flags().StringVar(&o.Worker, "worker", "", "only lines of this worker, by its `id`")
	c.Flags().StringVar(&o.After, "from", "", "begin behind the line with this `cursor`, which an interruption prints; 0 is the beginning")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "stay, and print what comes next")
	return c
}

// printLines prints lines as they come, with their worker if named is true.
func printLines(ctx context.Context, sh *shell, lines *client.Logs, named bool) error {
	for l, err := range lines.All(ctx) {
		switch {
		case errors.Is(err, context.Canceled):
			return fmt.Errorf("no longer reading; go on with --from %s", lines.Cursor())
		case err != nil:
			return err
		case sh.flags.output == "json":
			_, err = fmt.Fprintf(sh.Out, "%s\n", l.Raw)
		default:
			text := clean(l.Text)
			if l.Truncated {
				text += " …"
			}
			if l.Stream == api.SystemStream {
				text = "# " + text
			}
			if named {
				text = clean(l.WorkerID) + "  " + text
			}
			_, err = fmt.Fprintf(sh.Out, "%s  %s\n", when(l.Time), text)
		}
		if err != nil {
			return fmt.Errorf("print a line: %w", err)
		}
	}
	return nil
}
