package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

func (sh *shell) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ENDPOINT JOB", Short: "Tell why a job is where it is", Args: cobra.ExactArgs(2),
		Long: "Tell why a job is where it is: how many jobs come first, what the workers do,\n" +
			"how the last one ended, and what the autoscaler decided.",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			x, err := api.Explain(ctx, args[0], job.ID(args[1]))
			if err != nil {
				return err
			}
			return sh.show(x, explainRows(x))
		}),
	}
}

func explainRows(x *client.Explanation) [][]string {
	rows := [][]string{{"ID", clean(string(x.ID))}, {"STATUS", clean(string(x.Status))}, {"REASON", clean(x.Reason)}}
	if q := x.Queue; q != nil {
		text := fmt.Sprintf("%d of %d", q.Position, q.InQueue)
		if !q.Exact {
			text = fmt.Sprintf("%d to %d of %d", q.Position, q.PositionMost, q.InQueue)
		}
		rows = append(rows, []string{"POSITION", text})
	}
	w := x.Workers
	rows = append(rows, []string{"WORKERS", fmt.Sprintf("%d running, %d idle, %d initializing, %d throttled, %d unhealthy", w.Running, w.Idle, w.Initializing, w.Throttled, w.Unhealthy)})
	switch {
	case !x.Autoscaler:
		rows = append(rows, []string{"AUTOSCALER", "none runs"})
	case x.Scaling != nil:
		d := x.Scaling
		rows = append(rows, []string{"AUTOSCALER", fmt.Sprintf("wants %d, had %d at %s: %s", d.Wanted, d.Current, when(d.At), clean(d.Text))})
	}
	if f := x.LastWorkerError; f != nil {
		rows = append(rows, []string{"LAST WORKER ERROR", fmt.Sprintf("%s at %s: %s", clean(f.WorkerID), when(f.At), clean(f.Text))})
	}
	if x.WorkerID != "" {
		rows = append(rows, []string{"WORKER", clean(x.WorkerID)})
	}
	if !x.Deadline.IsZero() {
		rows = append(rows, []string{"TIMES OUT", when(x.Deadline)})
	}
	return append(rows, []string{"EXPIRES", when(x.Expires)})
}
