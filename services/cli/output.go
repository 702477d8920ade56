package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/terminal"
)

// show writes an answer: v as JSON, or the rows as a table. The first row of
// several columns is the heading. On a terminal a table of three columns or more is
// made to fit.
func (sh *shell) show(v any, rows [][]string) error {
	if sh.flags.output == "json" {
		encoder := json.NewEncoder(sh.Out)
		encoder.SetEscapeHTML(false) // an output stays as it was given
		if err := encoder.Encode(v); err != nil {
			return fmt.Errorf("print the answer: %w", err)
		}
		return nil
	}
	return terminal.Table(sh.Out, rows)
}

// runAndShow is the RunE of a command that shows what call returns, as a table of rows.
func runAndShow[T any](sh *shell, call func(ctx context.Context, api *client.Client, args []string) (T, error), rows func(T) [][]string) func(*cobra.Command, []string) error {
	return sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		answer, err := call(ctx, api, args)
		if err != nil {
			return err
		}
		return sh.show(answer, rows(answer))
	})
}

// listCommand is a command that shows a list, a row for each of its elements.
func listCommand[T any](sh *shell, use, short string, heading []string, list func(ctx context.Context, api *client.Client, args []string) ([]T, error), row func(T) []string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		RunE: runAndShow(sh, list, func(all []T) [][]string {
			rows := [][]string{heading}
			for _, one := range all {
				rows = append(rows, row(one))
			}
			return rows
		}),
	}
}

// listAllCommand is the command that shows all that noun, such as (*client.Client).Keys, lists.
func listAllCommand[N, T any](sh *shell, short string, heading []string, noun func(*client.Client) N, list func(N, context.Context) ([]T, error), row func(T) []string) *cobra.Command {
	return listCommand(sh, "list", short, heading, func(ctx context.Context, api *client.Client, _ []string) ([]T, error) {
		return list(noun(api), ctx)
	}, row)
}

// onID is a command that shows what do returns of the thing of an id.
func onID[N, T any](sh *shell, verb, short string, noun func(*client.Client) N, do func(N, context.Context, string) (T, error), rows func(T) [][]string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short,
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (T, error) {
			return do(noun(api), ctx, args[0])
		}, rows),
	}
}

// deleteCommand is the command that removes the thing of an id.
func deleteCommand[N any](sh *shell, short string, noun func(*client.Client) N, remove func(N, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: short,
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if err := remove(noun(api), ctx, args[0]); err != nil {
				return err
			}
			return sh.show(map[string]string{"deleted": args[0]}, [][]string{{"DELETED", args[0]}})
		}),
	}
}

// showNext prints how to list the page after the one that cmd showed: with the flags
// that were typed, and the cursor, "" after the last page.
func showNext(sh *shell, cmd *cobra.Command, args []string, cursor string) error {
	if cursor == "" || sh.flags.output == "json" {
		return nil
	}
	words := []string{sh.Program + strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name())}
	for _, arg := range args {
		words = append(words, word(arg))
	}
	words = append(append(words, typedWords(cmd.Flags())...), "--cursor", word(clean(cursor)))
	_, err := fmt.Fprintln(sh.Err, "more:", strings.Join(words, " "))
	return err
}

// typedWords are the flags that were typed, but for a cursor and for secrets.
func typedWords(flags *pflag.FlagSet) (words []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		secret := flags.Lookup(f.Name+"-file") != nil
		if !f.Changed || f.Name == "cursor" || secret {
			return
		}
		text := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			text = strings.Join(list.GetSlice(), ",")
		}
		if f.Value.Type() == "bool" {
			words = append(words, strings.TrimSuffix("--"+f.Name+"="+text, "=true"))
			return
		}
		words = append(words, "--"+f.Name, word(text))
	})
	return words
}

// checkOutput refuses a format that does not exist before anything is done.
func (f flags) checkOutput() error {
	if f.output == "table" || f.output == "json" {
		return nil
	}
	return &UsageError{fmt.Errorf("-o %s: must be table or json", f.output)}
}

func (sh *shell) showJob(j *client.Job) error {
	rows := [][]string{{"ID", string(j.ID)}, {"STATUS", string(j.Status)}}
	rows = append(rows, present([]row{
		{"DELAY", j.Delay.String(), j.Delay > 0 || j.Status.Terminal()},
		{"EXECUTION", j.Execution.String(), j.Execution > 0 || j.Status.Terminal()},
		{"WORKER", j.WorkerID, j.WorkerID != ""},
		{"LOST", j.WorkerLost, j.WorkerLost != ""},
		{"RETRIES", fmt.Sprint(j.Retries), j.Retries > 0},
		{"ERROR", j.Error, j.Error != ""},
		{"OUTPUT", oneLine(j.Output), len(j.Output) > 0},
	})...)
	return sh.show(j, rows)
}

// row is a row of a table, which is left out unless it has something to show.
type row struct {
	name, text string
	has        bool
}

// present are the rows that have something to show, with their texts cleaned.
func present(all []row) (rows [][]string) {
	for _, r := range all {
		if r.has {
			rows = append(rows, []string{r.name, clean(r.text)})
		}
	}
	return rows
}

func healthRows(h client.Health) [][]string {
	jobs, workers := h.Jobs, h.Workers
	lost := []string{"", ""}
	if jobs.WorkerLost > 0 {
		lost = []string{"worker lost", text(jobs.WorkerLost)}
	}
	return [][]string{
		{"JOBS", "", "WORKERS", ""},
		{"in queue", text(jobs.InQueue), "idle", text(workers.Idle)},
		{"in progress", text(jobs.InProgress), "running", text(workers.Running)},
		{"completed", text(jobs.Completed), "ready", text(workers.Ready)},
		{"failed", text(jobs.Failed), "initializing", text(workers.Initializing)},
		{"retried", text(jobs.Retried), "throttled", text(workers.Throttled)},
		append(lost, "unhealthy", text(workers.Unhealthy)),
	}
}

// oneLine is a document without the white space that a worker put between its
// parts.
func oneLine(document json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, document); err != nil {
		return clean(string(document))
	}
	return clean(line.String())
}

// unknown stands for what is not known, or not yet.
const unknown = "-"

// known is text, unless it is not known.
func known(text string, isKnown bool) string {
	if isKnown {
		return text
	}
	return unknown
}

// clean keeps text from a worker from moving the cursor or breaking the table.
// Some terminals obey also the control characters beyond ASCII.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// when is a time of this machine's zone, which it says.
func when(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.Local().Format(time.RFC3339)
}

// plainWord is what the shell does not change.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:,=@%+-]+$`)

// word is text as a word of the shell, quoted where the shell would change it.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return quote(text)
}

// quote makes one word of the shell of text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
