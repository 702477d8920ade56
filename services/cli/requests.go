package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

func (sh *shell) requestsCommand() *cobra.Command {
	var o client.RequestsOptions
	var statuses []string
	c := &cobra.Command{
		Use: "requests ENDPOINT", Short: "List an endpoint's jobs, the newest first", Args: cobra.ExactArgs(1),
		Long: "List an endpoint's jobs, the newest first: those that wait or run, and those\n" +
			"that are over while their results can be read. If there are more, the last\n" +
			"line says how to go on.",
		Example: "  flightline requests echo --status FAILED,TIMED_OUT --limit 100\n  flightline requests echo -o json",
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			for _, status := range statuses {
				o.Statuses = append(o.Statuses, job.Status(strings.ToUpper(status)))
			}
			page, err := c.Requests(ctx, args[0], o)
			if err != nil {
				return err
			}
			return sh.showRequests(args[0], statuses, page)
		}),
	}
	c.Flags().StringSliceVar(&statuses, "status", nil, "only jobs that are `STATUS`, or one of several separated by commas")
	c.Flags().IntVar(&o.Limit, "limit", 0, "how many jobs at most (1 to 100; default 10)")
	c.Flags().StringVar(&o.Cursor, "cursor", "", "go on where an earlier list ended")
	return c
}

func (sh *shell) showRequests(endpoint string, statuses []string, page *client.RequestsPage) error {
	rows := [][]string{{"ID", "STATUS", "SUBMITTED", "DELAY", "EXECUTION", "RETRIES", "WORKER"}}
	for _, j := range page.Requests {
		rows = append(rows, []string{
			clean(string(j.ID)), clean(string(j.Status)), when(j.Submitted),
			j.Delay.String(), j.Execution.String(), fmt.Sprint(j.Retries), clean(j.WorkerID),
		})
	}
	if err := sh.show(page, rows); err != nil {
		return err
	}
	if page.Cursor == "" || sh.flags.output == "json" {
		return nil
	}
	of := ""
	if len(statuses) > 0 {
		of = " --status " + strings.Join(statuses, ",")
	}
	_, err := fmt.Fprintf(sh.Err, "more: flightline requests %s%s --cursor %s\n", endpoint, of, clean(page.Cursor))
	return err
}
