package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/terminal"
)

func (sh *shell) eventsCommand() *cobra.Command {
	var o client.EventsOptions
	var since string
	var follow bool
	c := &cobra.Command{
		Use: "events ENDPOINT [JOB]", Short: "Print what happens to an endpoint's jobs, or to one",
		Long: "Print what happened to the jobs of an endpoint, or to one job: all that the\n" +
			"server keeps, or its events since a time. With --follow, stay and print\n" +
			"what happens next; alone, --follow begins with that.\n\n" +
			"The types are job.queued, job.started, job.completed, job.failed,\n" +
			"job.cancelled and job.timed_out. With -o json each event is a line, in the form\n" +
			"of CloudEvents 1.0.",
		Example: "  flightline events echo --since 10m --type failed,timed_out\n  flightline events echo --follow -o json",
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) > 1 {
				o.Job = job.ID(args[1])
			}
			for i, name := range o.Types {
				o.Types[i] = "job." + strings.TrimPrefix(name, "job.")
			}
			var err error
			if o.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}
			if o.Once = !follow; o.Once && o.After == "" && since == "" {
				o.After = "0"
			}
			return sh.events(ctx, c.Events(args[0], o))
		}),
	}
	c.Flags().StringVar(&since, "since", "", "begin at this `time`: how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z")
	c.Flags().StringVar(&o.After, "from", "", "begin behind the event with this `cursor`, as an interruption prints it; 0 is the beginning")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "stay, and print what happens next")
	c.Flags().StringSliceVar(&o.Types, "type", nil, "only events of this `TYPE`, or of several separated by commas")
	return c
}

// sinceOf reads an instant, or how long before now it was; "" is the zero time.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &UsageError{fmt.Errorf("--since %s: must be how long ago, as 10m, or an instant, as 2026-01-31T12:00:00Z", text)}
	}
	return at, nil
}

func (sh *shell) events(ctx context.Context, events *client.Events) error {
	widths := []int{25, 13, 41, 7, 3, 36}
	terminalWidth := terminal.Width(sh.Out)
	if terminalWidth > 0 {
		terminal.Narrow(widths, terminalWidth)
	}
	row := func(cells ...string) error {
		if terminalWidth > 0 {
			for i := range cells {
				cells[i] = terminal.Shorten(cells[i], widths[i])
			}
		}
		_, err := fmt.Fprintf(sh.Out, "%-*s  %-*s  %-*s  %*s  %*s  %s\n",
			widths[0], cells[0], widths[1], cells[1], widths[2], cells[2], widths[3], cells[3], widths[4], cells[4], cells[5])
		return err
	}
	if sh.flags.output == "table" {
		if err := row("TIME", "TYPE", "JOB", "ATTEMPT", "RUN", "WORKER"); err != nil {
			return err
		}
	}
	for e, err := range events.All(ctx) {
		switch {
		case errors.Is(err, context.Canceled):
			return fmt.Errorf("no longer reading; go on with --from %s", events.Cursor())
		case err != nil:
			return err
		case sh.flags.output == "json":
			_, err = fmt.Fprintf(sh.Out, "%s\n", e.Raw)
		default:
			last := clean(e.WorkerID)
			if e.Error != "" {
				last += "  " + clean(e.Error)
			}
			err = row(when(e.Time), clean(e.Type), clean(string(e.Job)), fmt.Sprint(e.Attempt), fmt.Sprint(e.Run), last)
		}
		if err != nil {
			return fmt.Errorf("print an event: %w", err)
		}
	}
	return nil
}
