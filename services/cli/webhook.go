package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

func (sh *shell) webhookCommand() *cobra.Command {
	c := &cobra.Command{Use: "webhook", Short: "Look after webhooks: deliveries, replay, pause, resume, secret"}
	c.AddCommand(sh.webhookDeliveries(), sh.webhookDestinations(), sh.webhookReplay(), sh.webhookPause(), sh.webhookResume(), sh.webhookSecret())
	return c
}

func (sh *shell) webhookDeliveries() *cobra.Command {
	var q client.WebhookQuery
	var id, since string
	c := &cobra.Command{
		Use: "deliveries ENDPOINT", Short: "List the attempts of the last 7 days, the newest first",
		Example: "  flightline webhook deliveries echo --failed --since 1h",
	}
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		var err error
		if q.Since, err = sinceOf(since, time.Now()); err != nil {
			return err
		}
		q.Job = job.ID(id)
		page, err := api.Webhooks(args[0]).Deliveries(ctx, q)
		if err != nil {
			return err
		}
		rows := [][]string{{"STARTED", "JOB", "TRY", "OUTCOME", "STATUS", "TOOK", "URL", "WHY"}}
		for _, d := range page.Deliveries {
			took := time.Duration(d.DurationMs) * time.Millisecond
			rows = append(rows, []string{
				when(d.Started), string(d.Job), fmt.Sprint(d.Try), d.Outcome, known(fmt.Sprint(d.Status), d.Status != 0),
				known(took.String(), took != 0 || d.Status != 0), clean(d.URL), clean(d.Error),
			})
		}
		if err := sh.show(page, rows); err != nil {
			return err
		}
		return showNext(sh, c, args, page.Cursor)
	})
	f := c.Flags()
	f.StringVar(&id, "job", "", "of one job only")
	f.StringVar(&since, "since", "", "begun since then: how long ago, as 1h, or an instant, as 2026-01-31T12:00:00Z")
	f.BoolVar(&q.Failed, "failed", false, "without what was delivered")
	f.IntVar(&q.Limit, "limit", 0, "how many at most (1 to 500; default 50)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where another list ended")
	setBounds(f, "limit", 1, 500)
	mayBeEmpty(f, "cursor")
	return c
}

func (sh *shell) webhookDestinations() *cobra.Command {
	return listCommand(sh, "destinations ENDPOINT", "List receivers that keep failing or are paused", []string{"DESTINATION", "FAILURES", "PAUSED", "SINCE", "REASON"},
		func(ctx context.Context, api *client.Client, args []string) ([]client.WebhookDestination, error) {
			return api.Webhooks(args[0]).Destinations(ctx)
		},
		func(d client.WebhookDestination) []string {
			return []string{clean(d.Destination), fmt.Sprint(d.Failures), fmt.Sprint(d.Paused), when(d.Since), clean(d.Reason)}
		})
}

func (sh *shell) webhookReplay() *cobra.Command {
	var since string
	c := &cobra.Command{
		Use: "replay ENDPOINT [JOB]", Short: "Send the webhook of a job again, or all that were given up since a time",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if (len(args) == 2) == (since != "") {
				return &UsageError{errors.New("give either a job or --since")}
			}
			var n int
			var err error
			if len(args) == 2 {
				n, err = api.Webhooks(args[0]).Replay(ctx, job.ID(args[1]))
			} else {
				var from time.Time
				if from, err = sinceOf(since, time.Now()); err == nil {
					n, err = api.Webhooks(args[0]).ReplaySince(ctx, from)
				}
			}
			return sh.showReplayed(n, err)
		}),
	}
	c.Flags().StringVar(&since, "since", "", "all given up since then: how long ago, as 1h, or an instant, as 2026-01-31T12:00:00Z")
	return c
}

func (sh *shell) webhookPause() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "pause ENDPOINT DESTINATION", Short: "Keep webhooks back that go to a destination",
		Long: "Keep webhooks back that go to a destination, the scheme, host and port of an\n" +
			"address. They wait for 'resume', at most 7 days.",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.WebhookDestination, error) {
			return api.Webhooks(args[0]).Pause(ctx, args[1], reason)
		}, func(d *client.WebhookDestination) [][]string {
			return [][]string{{"PAUSED", clean(d.Destination)}, {"REASON", clean(d.Reason)}}
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for those who look later")
	return c
}

func (sh *shell) webhookResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume ENDPOINT DESTINATION", Short: "Send webhooks to a paused destination again",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			return sh.showReplayed(api.Webhooks(args[0]).Resume(ctx, args[1]))
		}),
	}
}

// longestOverlap is the API's.
const longestOverlap = 720 * time.Hour

// errOverlap is what the API refuses within an overlap, in the words of a command.
var errOverlap = errors.New("the secret before this one still signs: wait for the end of its overlap, or give --overlap 0s, which ends it now")

func (sh *shell) webhookSecret() *cobra.Command {
	overlap := 24 * time.Hour
	c := &cobra.Command{
		Use: "secret ENDPOINT", Short: "Make a new secret; the present one signs beside it for a while",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			made, err := api.Webhooks(args[0]).RotateSecret(ctx, overlap)
			if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusConflict {
				return errOverlap
			}
			if err != nil {
				return err
			}
			return sh.show(made, [][]string{{"SECRET", made.Secret}, {"BOTH SIGN UNTIL", when(made.OverlapUntil)}})
		}),
	}
	bounded(c.Flags(), &overlap, "overlap", 0, longestOverlap, "how long the present secret goes on signing", "with 0s those before it cease too")
	return c
}

func (sh *shell) showReplayed(n int, err error) error {
	if err != nil {
		return err
	}
	return sh.show(map[string]int{"replayed": n}, [][]string{{"REPLAYED", fmt.Sprint(n)}})
}
