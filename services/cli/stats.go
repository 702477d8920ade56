package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

const sinceUsage = "begin at this `time`: how long ago, as 3h, or an instant, as 2026-01-31T12:00:00Z"

func statsCommand(sh *shell) *cobra.Command {
	var o client.StatsOptions
	var since string
	c := &cobra.Command{
		Use: "stats ENDPOINT", Short: "Print what happened at an endpoint, by the minute or by the hour",
		Long: "Print what happened at an endpoint, by the minute or by the hour: how many jobs\n" +
			"came and how they ended, how long they waited and ran, and how many workers\n" +
			"there were. A time in which nothing happened has no row.",
		Example: "  flightline stats echo\n  flightline stats echo --since 168h --step 1h -o json",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, args []string) (s *client.Stats, err error) {
			if o.From, err = sinceOf(since, time.Now()); err != nil {
				return nil, err
			}
			return c.Stats(ctx, args[0], o)
		}, statsRows),
	}
	c.Flags().StringVar(&since, "since", "", sinceUsage+" (default: an hour ago)")
	c.Flags().DurationVar(&o.Step, "step", 0, "what one row stands for: 1m or 1h (default: 1m for at most 24 hours, else 1h)")
	setBounds(c.Flags(), "step", time.Minute, time.Hour)
	return c
}

func statsRows(s *client.Stats) [][]string {
	rows := [][]string{{"AT", "SUBMITTED", "COMPLETED", "FAILED", "TIMED OUT", "DELAY P50", "P95", "EXECUTION P50", "P95", "WORKERS"}}
	for _, p := range s.Points {
		rows = append(rows, []string{
			instantText(p.At), text(p.Submitted), text(p.Completed), text(p.Failed), text(p.TimedOut),
			milliseconds(p.DelayMs.P50), milliseconds(p.DelayMs.P95), milliseconds(p.ExecutionMs.P50), milliseconds(p.ExecutionMs.P95), strconv.Itoa(p.Workers),
		})
	}
	return rows
}

func failuresCommand(sh *shell) *cobra.Command {
	var since string
	c := &cobra.Command{
		Use: "failures [ENDPOINT]", Short: "Group the failures of an endpoint, or of all, by their cause",
		Long: "Group the failures of an endpoint, or of all that the key may read, by their\n" +
			"cause: the error without its numbers, ids and paths. Hours count whole, also the\n" +
			"one in which --since is. The jobs of a cause are listed by\n" +
			"'flightline requests ENDPOINT --fingerprint FINGERPRINT'.",
		Example: "  flightline failures\n  flightline failures echo --since 1h",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, args []string) ([]client.FailureGroup, error) {
			from, err := sinceOf(since, time.Now())
			if err != nil {
				return nil, err
			}
			return c.Failures(ctx, strings.Join(args, ""), from, time.Time{})
		}, func(groups []client.FailureGroup) [][]string {
			rows := [][]string{{"COUNT", "ENDPOINT", "FINGERPRINT", "FIRST", "LAST", "ERROR"}}
			for _, g := range groups {
				rows = append(rows, []string{text(g.Count), clean(g.Endpoint), clean(g.Fingerprint), instantText(g.FirstAt), instantText(g.LastAt), clean(g.Error)})
			}
			return rows
		}),
	}
	c.Flags().StringVar(&since, "since", "", sinceUsage+" (default: 24 hours ago)")
	return c
}

func overviewCommand(sh *shell) *cobra.Command {
	var q client.OverviewQuery
	c := &cobra.Command{
		Use: "overview", Short: "Print how all endpoints stand, and what needs attention",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, _ []string) (*client.Overview, error) {
			return c.WholeOverview(ctx, q)
		}, overviewRows),
	}
	c.Flags().BoolVar(&q.Attention, "attention", false, "only the endpoints that need attention")
	return c
}

func overviewRows(all *client.Overview) [][]string {
	rows := [][]string{{"ENDPOINT", "IN QUEUE", "IN PROGRESS", "WORKERS", "COMPLETED IN 1H", "FAILED IN 1H", "ATTENTION"}}
	sum := func(list []int64) (n int64) {
		for _, v := range list {
			n += v
		}
		return n
	}
	for _, e := range all.Endpoints {
		var needs []string
		for _, a := range e.Attention {
			needs = append(needs, clean(a.Text))
		}
		rows = append(rows, []string{
			clean(e.ID), text(e.Jobs.InQueue), text(e.Jobs.InProgress), text(e.Workers.Idle + e.Workers.Running),
			text(sum(e.LastHour.Completed)), text(sum(e.LastHour.Failed)), known(strings.Join(needs, "; "), len(needs) > 0),
		})
	}
	return rows
}

func findCommand(sh *shell) *cobra.Command {
	return &cobra.Command{
		Use: "find JOB", Short: "Find a job whose endpoint is not known",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, args []string) (*client.FoundJob, error) {
			return c.FindJob(ctx, job.ID(args[0]))
		}, func(found *client.FoundJob) [][]string {
			return [][]string{{"ENDPOINT", clean(found.Endpoint)}, {"ID", clean(string(found.ID))}, {"STATUS", clean(string(found.Status))}}
		}),
	}
}

// text is a count as a cell of a table.
func text[T int | int64](n T) string { return fmt.Sprint(n) }

// milliseconds is a length of time of the API as a cell of a table.
func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// instantText is an instant of the API in the local time, as it came if it is none.
func instantText(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return clean(at)
	}
	return when(t)
}
