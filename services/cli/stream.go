package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/job"
)

// The ways to print a chunk.
const (
	chunksAsJSON = "json"
	chunksRaw    = "raw"
)

func (sh *shell) streamCommand() *cobra.Command {
	format, from := chunksAsJSON, uint64(0)
	c := &cobra.Command{
		Use: "stream ENDPOINT JOB", Short: "Print what a job puts out while it runs", Args: cobra.ExactArgs(2),
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
	c.Flags().Uint64Var(&from, "from", 0, "begin behind the chunk with this `cursor`, as an interruption tells it")
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
