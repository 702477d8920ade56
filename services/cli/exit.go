package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/process"
)

// The exit codes, a promise to scripts; 0 to 2 are those of package process.
const (
	// ExitUnreachable says that the server could not be reached.
	ExitUnreachable = 3
	// ExitNotFound says that the job, endpoint or key does not exist.
	ExitNotFound = 4
)

// CodedError is an error that decides the exit code.
type CodedError struct {
	Code int
	Err  error
}

func (e *CodedError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *CodedError) Unwrap() error { return e.Err }

// UsageError is an error in the command line: nothing was tried.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *UsageError) Unwrap() error { return e.Err }

// errShown is a failure whose reason the answer has told already.
var errShown = errors.New("the job did not complete")

// exitCode decides the exit code of a command that ended with err; started
// reports whether it was a command at all.
func exitCode(err error, started bool) int {
	var usage *UsageError
	var coded *CodedError
	switch {
	case !started || errors.As(err, &usage):
		return process.ExitUsage
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, errNoServer):
		return ExitUnreachable
	case client.IsNotFound(err):
		return ExitNotFound
	}
	return process.ExitFailure
}

// errorText is what to tell people about err; "" if they know.
func (sh *shell) errorText(ctx context.Context, err error) string {
	var refusal *client.Error
	switch {
	case errors.Is(err, errShown):
		return ""
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return "interrupted"
	case sh.noKey != "" && errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		return err.Error() + "; " + sh.noKey
	}
	return err.Error()
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use: "exit-codes", Short: "What the exit codes mean",
		Long: `Every command ends with one of these exit codes:

  0  it did what it was asked
  1  it failed: the server refused, or the job that 'runsync', 'stream' or
     '--wait' waited for is FAILED, TIMED_OUT or CANCELLED, or did not end in time
  2  usage error; nothing was tried
  3  the server could not be reached; of a submission nothing is known
  4  the job, endpoint or key does not exist, or no longer does`,
	}
}
