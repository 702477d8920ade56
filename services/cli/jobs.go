package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

// with makes the RunE of a command that talks to the server.
func (sh *shell) with(do func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := sh.checkOutput(); err != nil {
			return err
		}
		if err := checkTyped(cmd.Flags()); err != nil {
			return err
		}
		c, err := sh.connect()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	}
}

func (sh *shell) jobCommands() []*cobra.Command {
	return []*cobra.Command{
		sh.runCommand(), sh.runSyncCommand(), sh.statusCommand(), sh.streamCommand(), sh.eventsCommand(),
		sh.onJob("cancel", "End a job that waits or runs", (*client.Client).Cancel),
		sh.onJob("retry", "Queue a FAILED or TIMED_OUT job again", (*client.Client).Retry),
		sh.purgeCommand(), sh.healthCommand(), sh.requestsCommand(), sh.explainCommand(),
	}
}

const inputHelp = `

INPUT is a JSON object, @FILE, or - for standard input. An object with the key
"input" is a whole request as the API takes it, with "webhook", "policy" and
"s3Config"; any other object is the job's input itself.`

func (sh *shell) runCommand() *cobra.Command {
	var p policyFlags
	var wait bool
	c := &cobra.Command{
		Use: "run ENDPOINT INPUT", Short: "Submit a job", Args: cobra.ExactArgs(2),
		Long:    "Submit a job and print its id; with --wait, stay until it has ended." + inputHelp,
		Example: "  flightline run echo '{\"text\":\"hello\"}' --wait\n  flightline run echo @job.json --ttl 1h -o json",
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := sh.request(args[1], p)
			if err != nil {
				return err
			}
			j, err := c.Run(ctx, args[0], r)
			if err != nil {
				return err
			}
			if !wait {
				return sh.showJob(j)
			}
			return sh.await(ctx, c, args[0], j.ID)
		}),
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	return c
}

func (sh *shell) runSyncCommand() *cobra.Command {
	var p policyFlags
	wait := job.DefaultWait
	c := &cobra.Command{
		Use: "runsync ENDPOINT INPUT", Short: "Submit a job and wait for its result", Args: cobra.ExactArgs(2),
		Long: "Submit a job and wait for its result, but no longer than --wait." + inputHelp,
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := sh.request(args[1], p)
			if err != nil {
				return err
			}
			var j *client.Job
			err = newLive(sh.Err).during(func() error {
				j, err = c.RunSync(ctx, args[0], r, wait)
				return err
			})
			if err != nil {
				return err
			}
			return sh.showEnd(j, fmt.Errorf("not finished after %v; look later: flightline status %s %s", wait, args[0], j.ID))
		}),
	}
	p.add(c.Flags())
	c.Flags().DurationVar(&wait, "wait", wait, "how long to wait for the result (1s to 5m)")
	return c
}

func (sh *shell) statusCommand() *cobra.Command {
	var ttl time.Duration
	var wait bool
	c := &cobra.Command{
		Use: "status ENDPOINT JOB", Short: "Show a job", Args: cobra.ExactArgs(2),
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			endpoint, id := args[0], job.ID(args[1])
			look := c.Status
			if ttl != 0 {
				look = func(ctx context.Context, endpoint string, id job.ID) (*client.Job, error) {
					return c.SetTTL(ctx, endpoint, id, ttl)
				}
			}
			j, err := look(ctx, endpoint, id)
			if err != nil {
				return err
			}
			if wait {
				return sh.await(ctx, c, endpoint, id)
			}
			return sh.showJob(j)
		}),
	}
	c.Flags().DurationVar(&ttl, "ttl", 0, "first let the job expire this long after its submission (1s to 168h)")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	return c
}

func (sh *shell) onJob(name, short string, do func(*client.Client, context.Context, string, job.ID) (*client.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use: name + " ENDPOINT JOB", Short: short, Args: cobra.ExactArgs(2),
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			j, err := do(c, ctx, args[0], job.ID(args[1]))
			if err != nil {
				return err
			}
			return sh.showJob(j)
		}),
	}
}

func (sh *shell) purgeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "purge ENDPOINT", Short: "Cancel every waiting job", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			removed, err := c.PurgeQueue(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.show(map[string]int{"removed": removed}, [][]string{{"REMOVED", fmt.Sprint(removed)}})
		}),
	}
}

func (sh *shell) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health ENDPOINT", Short: "Count an endpoint's jobs and workers", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			h, err := c.Health(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.showHealth(h)
		}),
	}
}

func (sh *shell) request(arg string, p policyFlags) (client.Request, error) {
	data, err := readInput(arg, sh.In)
	if err != nil {
		return client.Request{}, err
	}
	return requestOf(data, p)
}

// await waits for the end of a job and shows it.
func (sh *shell) await(ctx context.Context, c *client.Client, endpoint string, id job.ID) error {
	line := newLive(sh.Err)
	var each func(*client.Job)
	if line.out != nil { // looking each second is for people only
		each = func(j *client.Job) { line.set(j.Status) }
	}
	var j *client.Job
	err := line.during(func() (err error) {
		j, err = c.WaitEach(ctx, endpoint, id, each)
		return err
	})
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("no longer waiting for job %s, which goes on", id)
	}
	if err != nil {
		return err
	}
	return sh.showEnd(j, nil)
}

// showEnd shows a job that was waited for and tells by its error whether it
// completed. unfinished is the error for one that has not ended.
func (sh *shell) showEnd(j *client.Job, unfinished error) error {
	if err := sh.showJob(j); err != nil {
		return err
	}
	switch {
	case j.Status == job.Completed:
		return nil
	case j.Status.Terminal():
		return errShown
	}
	return unfinished
}
