package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/terminal"
)

// with makes the RunE of a command that talks to the server.
func (sh *shell) with(do func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := sh.flags.checkOutput(); err != nil {
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
		sh.purgeCommand(), sh.healthCommand(), sh.requestsCommand(), sh.explainCommand(), sh.inputCommand(),
		findCommand(sh), statsCommand(sh), failuresCommand(sh), overviewCommand(sh), systemCommand(sh), logsCommand(sh),
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
		Use: "run ENDPOINT INPUT", Short: "Submit a job",
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
		Use: "runsync ENDPOINT INPUT", Short: "Submit a job and wait for its result",
		Long: "Submit a job and wait for its result, but no longer than --wait." + inputHelp,
	}
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		r, err := sh.request(args[1], p)
		if err != nil {
			return err
		}
		var j *client.Job
		began := time.Now()
		err = terminal.NewLive(sh.Err).During(func() error {
			j, err = api.RunSync(ctx, args[0], r, wait)
			return err
		})
		if errors.Is(err, context.Canceled) { // only the answer has the id
			return fmt.Errorf("no longer waiting; a job that was submitted goes on: %s requests %s", sh.Program, args[0])
		}
		if err != nil {
			return err
		}
		look := append([]string{sh.Program, "status", args[0], string(j.ID)}, typedWords(c.PersistentFlags())...)
		return sh.showEnd(j, fmt.Errorf("not finished after %v; look later: %s", min(wait, time.Since(began).Round(time.Second)), strings.Join(look, " ")))
	})
	p.add(c.Flags())
	bounded(c.Flags(), &wait, "wait", job.MinWait, job.MaxWait, "how long to wait for the result", "")
	return c
}

func (sh *shell) statusCommand() *cobra.Command {
	var ttl time.Duration
	var wait bool
	c := &cobra.Command{
		Use: "status ENDPOINT JOB", Short: "Show a job",
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
	bounded(c.Flags(), &ttl, "ttl", job.MinChangedTTL, job.MaxTTL, "first let the job expire this long after its submission", "")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	return c
}

func (sh *shell) onJob(name, short string, do func(*client.Client, context.Context, string, job.ID) (*client.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use: name + " ENDPOINT JOB", Short: short,
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, args []string) (*client.Job, error) {
			return do(c, ctx, args[0], job.ID(args[1]))
		}, func(j *client.Job) [][]string { // the answer has no times
			return [][]string{{"ID", string(j.ID)}, {"STATUS", string(j.Status)}}
		}),
	}
}

func (sh *shell) purgeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "purge ENDPOINT", Short: "Cancel every waiting job",
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
		Use: "health ENDPOINT", Short: "Count an endpoint's jobs and workers",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, args []string) (client.Health, error) {
			return c.Health(ctx, args[0])
		}, healthRows),
	}
}

func (sh *shell) request(arg string, p policyFlags) (client.Request, error) {
	data, err := readInput(arg, sh.In)
	if err != nil {
		return client.Request{}, err
	}
	return requestOf(bytes.TrimPrefix(data, []byte("\ufeff")), p) // as editors of Windows begin a file
}

// await waits for the end of a job and shows it.
func (sh *shell) await(ctx context.Context, c *client.Client, endpoint string, id job.ID) error {
	line := terminal.NewLive(sh.Err)
	var each func(*client.Job)
	if line.Shown() { // looking each second is for people only
		each = func(j *client.Job) { line.Set(string(j.Status)) }
	}
	var j *client.Job
	err := line.During(func() (err error) {
		j, err = c.WaitEach(ctx, endpoint, id, each)
		return err
	})
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("no longer waiting for job %s, which goes on", id)
	}
	if err != nil { // nothing else has named the job
		return fmt.Errorf("wait for job %s: %w", id, err)
	}
	return sh.showEnd(j, nil)
}

// showEnd shows a job that was waited for. It returns an error unless the job
// completed; unfinished is the error for a job that has not ended.
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

func (sh *shell) requestsCommand() *cobra.Command {
	var o client.RequestsOptions
	var statuses []string
	c := &cobra.Command{
		Use: "requests ENDPOINT", Short: "List an endpoint's jobs, the newest first",
		Long: "List an endpoint's jobs, the newest first: those that wait or run, and those\n" +
			"that are over while their results can be read. If there are more, the last\n" +
			"line says how to go on.",
		Example: "  flightline requests echo --status FAILED,TIMED_OUT --limit 100\n" +
			"  flightline requests echo --from 24h --to 23h\n  flightline requests echo --id 01920c2e\n  flightline requests echo -o json",
	}
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		for _, status := range statuses {
			o.Statuses = append(o.Statuses, job.Status(strings.ToUpper(status)))
		}
		page, err := api.Requests(ctx, args[0], o)
		if err != nil {
			return err
		}
		if err := sh.showRequests(page); err != nil {
			return err
		}
		return showNext(sh, c, args, page.Cursor)
	})
	c.Flags().StringSliceVar(&statuses, "status", nil, "only jobs that are `STATUS`, or one of several separated by commas")
	c.Flags().StringVar(&o.Worker, "worker", "", "only jobs whose last run was at this `WORKER`")
	c.Flags().StringVar(&o.Fingerprint, "fingerprint", "", "only jobs that failed with this cause, a `FINGERPRINT` of 'flightline failures'")
	c.Flags().StringVar(&o.From, "from", "", "only jobs that were queued, or ended if they are over, since this `TIME`: an instant, or how long ago as 10m or 24h")
	c.Flags().StringVar(&o.To, "to", "", "only jobs that were queued, or ended if they are over, before this `TIME`")
	c.Flags().StringVar(&o.ID, "id", "", "only jobs whose ids begin with this `TEXT`")
	c.Flags().IntVar(&o.Limit, "limit", 0, "how many jobs at most (1 to 100; default 10)")
	c.Flags().StringVar(&o.Cursor, "cursor", "", "go on where an earlier list ended")
	setBounds(c.Flags(), "limit", 1, 100)
	mayBeEmpty(c.Flags(), "cursor")
	return c
}

func (sh *shell) showRequests(page *client.RequestsPage) error {
	rows := [][]string{{"ID", "STATUS", "SUBMITTED", "DELAY", "EXECUTION", "RETRIES", "WORKER"}}
	for _, j := range page.Requests {
		rows = append(rows, []string{
			clean(string(j.ID)), clean(string(j.Status)), when(j.Submitted),
			known(j.Delay.String(), j.Delay > 0 || j.Status != job.InQueue), known(j.Execution.String(), j.Execution > 0 || j.Status.Terminal()),
			fmt.Sprint(j.Retries), known(clean(j.WorkerID), j.WorkerID != ""),
		})
	}
	return sh.show(page, rows)
}

func (sh *shell) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ENDPOINT JOB", Short: "Tell why a job is where it is",
		Long: "Tell why a job is where it is: how many jobs come first, what the workers do,\n" +
			"how the last one ended, and what the autoscaler decided.",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Explanation, error) {
			return api.Explain(ctx, args[0], job.ID(args[1]))
		}, explainRows),
	}
}

func (sh *shell) inputCommand() *cobra.Command {
	return &cobra.Command{
		Use: "input ENDPOINT JOB", Short: "Print what a job was given",
		Long: "Print what a job was given, as long as it is kept: until it is completed or\ncancelled, and after a failure or a timeout, or with a webhook, until its retention is over.",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.JobInput, error) {
			return api.Input(ctx, args[0], job.ID(args[1]))
		}, func(x *client.JobInput) [][]string {
			text := "not kept"
			if x.Input != nil {
				text = oneLine(x.Input)
			}
			return [][]string{{"ID", clean(string(x.ID))}, {"STATUS", clean(string(x.Status))}, {"INPUT", text}}
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
	if c := x.Endpoint.Canary; c != nil {
		rows = append(rows, []string{"CANARY", clean(c.String())})
	}
	if f := x.LastWorkerError; f != nil {
		rows = append(rows, []string{"LAST WORKER ERROR", fmt.Sprintf("%s at %s: %s", clean(f.WorkerID), when(f.At), clean(f.Text))})
		if f.Count > 1 {
			rows = append(rows, []string{"WORKERS FAILED", fmt.Sprintf("%d in the last hour", f.Count)})
		}
	}
	if x.WorkerID != "" {
		rows = append(rows, []string{"WORKER", clean(x.WorkerID)})
	}
	if x.Version > 0 {
		rows = append(rows, []string{"VERSION", fmt.Sprint(x.Version)})
	}
	rows = append(rows, startupRows("COLD START", x.ColdStart)...)
	if !x.Deadline.IsZero() {
		rows = append(rows, []string{"TIMES OUT", when(x.Deadline)})
	}
	return append(rows, []string{"EXPIRES", when(x.Expires)})
}

// The ways to print a chunk.
const (
	chunksAsJSON = "json"
	chunksRaw    = "raw"
)

func (sh *shell) streamCommand() *cobra.Command {
	format, from := chunksAsJSON, uint64(0)
	c := &cobra.Command{
		Use: "stream ENDPOINT JOB", Short: "Print what a job puts out while it runs",
		Long: "Print the chunks of a job's stream as they come, until the job has ended: each\n" +
			"as a line of JSON, or with --format raw what is text as it is, with nothing\n" +
			"between. It goes on where it was when the server restarts.",
		Example: "  flightline stream echo JOB --format raw",
		RunE: sh.with(func(ctx context.Context, c *client.Client, args []string) error {
			if format != chunksAsJSON && format != chunksRaw {
				return &UsageError{fmt.Errorf("--format %s: must be %s or %s", format, chunksAsJSON, chunksRaw)}
			}
			return sh.stream(ctx, c.Stream(args[0], job.ID(args[1]), client.StreamOptions{After: from}), format)
		}),
	}
	c.Flags().StringVar(&format, "format", format, "how to print a chunk: json or raw")
	c.Flags().Uint64Var(&from, "from", 0, "begin behind the chunk with this `cursor`, as an interruption prints it")
	return c
}

func (sh *shell) stream(ctx context.Context, s *client.Stream, format string) error {
	for chunk, err := range s.All(ctx) {
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("no longer reading; go on with --from %d", s.Cursor())
		}
		if err != nil {
			return err
		}
		if _, err := sh.Out.Write(printed(chunk.Data, format)); err != nil {
			return fmt.Errorf("print a chunk: %w", err)
		}
	}
	end := s.End()
	switch {
	case end.Status == job.Completed:
		return nil
	case end.Error != "":
		return fmt.Errorf("job %s is %s: %s", end.ID, end.Status, clean(end.Error))
	}
	return fmt.Errorf("job %s is %s", end.ID, end.Status)
}

// printed is a chunk as it is printed.
func printed(chunk json.RawMessage, format string) []byte {
	if format == chunksRaw {
		var element struct {
			Output *string `json:"output"`
		}
		if json.Unmarshal(chunk, &element) == nil && element.Output != nil {
			return []byte(*element.Output)
		}
	}
	return append(chunk, '\n')
}
